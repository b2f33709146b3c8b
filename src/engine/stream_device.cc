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
  const absl::Time deadline = absl::Now() + kFinalizeTime;
  for (const Group& group : groups_) group.native->Finalize(deadline).IgnoreError();
  if (native_ != nullptr) native_->Finalize(deadline).IgnoreError();
  if (stream_ != nullptr) device_.cuda->destroy_stream(stream_);
  if (for_graphs_.stream != nullptr) device_.cuda->destroy_stream(for_graphs_.stream);
  if (for_graphs_.error != nullptr) device_.cuda->free(for_graphs_.error);
  if (for_graphs_.error_here != nullptr) device_.cuda->free_pinned(for_graphs_.error_here);
}

absl::StatusOr<const ChannelOnDevice::ForGraphs*> ChannelOnDevice::ForCapture() {
  if (for_graphs_.stream != nullptr) return &for_graphs_;
  const CudaRuntime& cuda = *device_.cuda;
  const CudaOutsideCapture outside(cuda);
  const CudaDeviceScope scope(cuda, device_.index);
  constexpr std::size_t kBytes = sizeof(std::uint32_t);
  void* error = for_graphs_.error;
  void* here = for_graphs_.error_here;
  CudaError status = error == nullptr ? cuda.allocate(&error, kBytes) : kCudaSuccess;
  for_graphs_.error = static_cast<std::uint32_t*>(error);
  if (status == kCudaSuccess && here == nullptr) status = cuda.allocate_pinned(&here, kBytes);
  for_graphs_.error_here = static_cast<std::uint32_t*>(here);
  CUstream_st* stream = nullptr;
  if (status == kCudaSuccess) status = cuda.create_stream(&stream);
  if (status == kCudaSuccess) {
    *for_graphs_.error_here = 0;
    status = cuda.fill_async(error, 0, kBytes, stream);
    // Graphs do not wait for this stream. Nothing else is on it.
    if (status == kCudaSuccess) status = cuda.synchronize_stream(stream);
    if (status == kCudaSuccess) {
      for_graphs_.stream = stream;
    } else {
      cuda.destroy_stream(stream);
    }
  }
  if (status != kCudaSuccess) return CudaStatus(cuda, status, "to make ready for CUDA graphs");
  return &for_graphs_;
}

NativeTransport* ChannelOnDevice::NativeOf(absl::Span<const Rank> group) const {
  if (group.empty()) return native_.get();
  for (const Group& known : groups_) {
    if (group == absl::MakeConstSpan(known.ranks)) return known.native.get();
  }
  return nullptr;
}

absl::StatusOr<bool> ChannelOnDevice::Ready() {
  if (native_ == nullptr) return true;
  absl::StatusOr<bool> ready = native_->Ready();
  for (const Group& group : groups_) {
    if (!ready.ok()) return ready;
    const absl::StatusOr<bool> its = group.native->Ready();
    if (!its.ok()) return its;
    *ready = *ready && *its;
  }
  return ready;
}

void ChannelOnDevice::Abort(const absl::Status& cause, absl::Time deadline) {
  // An error of Abort leaves work on the device, which the caller looks for there.
  if (native_ != nullptr) native_->Abort(cause, deadline).IgnoreError();
  for (const Group& group : groups_) group.native->Abort(cause, deadline).IgnoreError();
}

}  // namespace tutti
