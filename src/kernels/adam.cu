#include "kernels/cuda_launcher.h"
#include "kernels/launch_adam-inl.h"

namespace tutti::kernels {

template absl::Status LaunchBlend<CudaLauncher>(Stream, DType, void*, const void*, const float*, std::int64_t,
                                                const AdamFactors&);
template absl::Status LaunchAdam<CudaLauncher>(Stream, DType, void*, const void*, float*, float*, std::int64_t,
                                               const AdamFactors&);
template absl::Status LaunchFrozenAdam<CudaLauncher>(Stream, DType, void*, const void*, float*, const float*,
                                                     std::int64_t, const AdamFactors&);

}  // namespace tutti::kernels
