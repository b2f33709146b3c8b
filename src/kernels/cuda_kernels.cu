#include "kernels/cuda_launcher.h"

namespace tutti::kernels {

absl::StatusOr<const DeviceKernels*> CudaKernels() { return &kKernelsOf<CudaLauncher>; }

}  // namespace tutti::kernels
