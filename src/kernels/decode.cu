#include "kernels/cuda_launcher.h"
#include "kernels/launch_messages-inl.h"

namespace tutti::kernels {

template absl::Status LaunchDecode<CudaLauncher>(Stream, absl::Span<const DecodeJob>, std::uint32_t*);

}  // namespace tutti::kernels
