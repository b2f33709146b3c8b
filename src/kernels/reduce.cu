#include "kernels/cuda_launcher.h"
#include "kernels/launch_reduce-inl.h"

namespace tutti::kernels {

template absl::Status LaunchReduce<CudaLauncher>(Stream, DType, ReduceOp, std::int32_t, absl::Span<void* const>,
                                                 absl::Span<const void* const>, std::int64_t);
template absl::Status LaunchReduceAndRound<CudaLauncher>(Stream, DType, ReduceOp, std::int32_t, absl::Span<void* const>,
                                                         absl::Span<const void* const>, std::int64_t);
template absl::Status LaunchDivide<CudaLauncher>(Stream, DType, void*, const void*, std::int32_t, std::int64_t);

}  // namespace tutti::kernels
