#include "kernels/cuda_launcher.h"
#include "kernels/launch_messages-inl.h"

namespace tutti::kernels {

template absl::Status LaunchRecode<CudaLauncher>(Stream, const EncodeJob&, float*,
                                                 absl::Span<const std::uint8_t* const>, std::int32_t, std::uint32_t*);

}  // namespace tutti::kernels
