#include "engine/stream_device.h"

#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace tutti {
namespace {

// The time that peers have to take what was sent to them, before the native transport is aborted.
constexpr absl::Duration kFinalizeTime = absl::Seconds(2);

}  // namespace

absl::StatusOr<std::unique_ptr<ChannelOnDevice>> ChannelOnDevice::Make(const StreamDevice& device,
                                                                       std::unique_ptr<NativeTransport> native) {
  std::unique_ptr<ChannelOnDevice> made(new ChannelOnDevice(device, std::move(native)));
  const CudaRuntime& cuda = *device.cuda;
  const CudaDeviceScope scope(cuda, device.index);
  if (scope.error() != kCudaSuccess) {
    return CudaStatus(cuda, scope.error(), "to use the device of a communicator");
  }
  if (const CudaError error = cuda.create_stream(&made->stream_); error != kCudaSuccess) {
    return CudaStatus(cuda, error, "to make the stream of a communicator");
  }
  return made;
}

ChannelOnDevice::~ChannelOnDevice() {
  // Messages of calls that have ended here may be on their way to a peer still. After Abort none are.
  if (native_ != nullptr) native_->Finalize(absl::Now() + kFinalizeTime).IgnoreError();
  if (stream_ != nullptr) device_.cuda->destroy_stream(stream_);
}

}  // namespace tutti
