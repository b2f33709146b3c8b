#include "kernels/cuda_launcher.h"
#include "kernels/launch_convert-inl.h"

namespace tutti::kernels {

template absl::Status LaunchConvert<CudaLauncher>(Stream, DType, void*, DType, const void*, std::int64_t);
template absl::Status LaunchCombine<CudaLauncher>(Stream, DType, void*, absl::Span<const void* const>,
                                                  const Coefficient*, std::int64_t, Results);
template absl::Status LaunchMultiply<CudaLauncher>(Stream, DType, void*, const void*, double, std::int64_t);

}  // namespace tutti::kernels
