#include "kernels/cuda_launcher.h"
#include "kernels/launch_messages-inl.h"

namespace tutti::kernels {

template absl::Status LaunchEncode<CudaLauncher>(Stream, absl::Span<const EncodeJob>);

}  // namespace tutti::kernels
