#include "engine/stream_device.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "memory/stuck_devices.h"

namespace tutti {
namespace {

// The time that peers have to take what was sent to them, before the native transport is aborted.
constexpr absl::Duration kFinalizeTime = absl::Seconds(2);
// The time that the host has to hear of a rank that has gone: the engine looks for such ranks every 50 ms, and takes
// two looks to be sure of one that has left.
constexpr absl::Duration kNewsTime = absl::Seconds(1);

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
  const CudaDeviceScope scope(*device_.cuda, device_.index);
  const CudaOutsideCapture outside(*device_.cuda);
  if (stream_ != nullptr && !given_up_) device_.cuda->destroy_stream(stream_);
  for (CUstream_st* const stream : graph_streams_) device_.cuda->destroy_stream(stream);
  if (IsStuck(*device_.cuda, device_.index)) return;
  if (graph_error_ != nullptr) device_.cuda->free(graph_error_);
  if (graph_error_here_ != nullptr) device_.cuda->free_pinned(graph_error_here_);
}

void ChannelOnDevice::GiveUp() {
  if (!std::exchange(given_up_, true)) GiveUpStream(device_.index, stream_);
}

absl::StatusOr<ChannelOnDevice::ForGraphs> ChannelOnDevice::ForCapture(unsigned long long id) {
  if (native_ != nullptr && !native_->works_in_graphs()) {
    return absl::UnimplementedError(absl::StrCat("a CUDA graph cannot make calls whose messages go through the host (",
                                                 native_->name(), "): call outside of the capture, or use NCCL"));
  }
  const CudaRuntime& cuda = *device_.cuda;
  const CudaDeviceScope scope(cuda, device_.index);
  const CudaOutsideCapture outside(cuda);
  const auto status_of = [&](CudaError error) { return CudaStatus(cuda, error, "to make ready for CUDA graphs"); };
  for (CUstream_st* const stream : graph_streams_) {
    CudaCapture capture = CudaCapture::kNone;
    unsigned long long its_id = 0;
    if (const CudaError error = cuda.capture_of(stream, &capture, &its_id); error != kCudaSuccess) {
      return status_of(error);
    }
    // The id of a capture that is invalid is not told.
    if (capture == CudaCapture::kNone || its_id == id) return ForGraphs{stream, graph_error_, graph_error_here_};
  }
  CUstream_st* stream = nullptr;
  if (const CudaError error = cuda.create_stream(&stream); error != kCudaSuccess) return status_of(error);
  graph_streams_.push_back(stream);
  constexpr std::size_t kBytes = sizeof(std::uint32_t);
  void* word = nullptr;
  if (graph_error_ == nullptr) {
    CudaError error = cuda.allocate(&word, kBytes);
    if (error == kCudaSuccess) error = cuda.fill_async(word, 0, kBytes, stream);
    // Graphs do not wait for this stream. Nothing else is on it.
    if (error == kCudaSuccess) error = cuda.synchronize_stream(stream);
    if (error != kCudaSuccess) return status_of(error);
    graph_error_ = static_cast<std::uint32_t*>(word);
  }
  if (graph_error_here_ == nullptr) {
    if (const CudaError error = cuda.allocate_pinned(&word, kBytes); error != kCudaSuccess) return status_of(error);
    graph_error_here_ = static_cast<std::uint32_t*>(word);
    *graph_error_here_ = 0;
  }
  return ForGraphs{stream, graph_error_, graph_error_here_};
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
    if (!its.ok()) return its.status();
    *ready = *ready && *its;
  }
  return ready;
}

bool ChannelOnDevice::HasAwaitedNews() {
  const std::int64_t now_ns = MonotonicNanos();
  if (news_end_ns_ == 0) news_end_ns_ = NanosAfter(now_ns, kNewsTime);
  return now_ns >= news_end_ns_;
}

void ChannelOnDevice::Abort(const absl::Status& cause, absl::Time deadline) {
  // An error of Abort leaves work on the device, which the caller looks for there.
  if (native_ != nullptr) native_->Abort(cause, deadline).IgnoreError();
  for (const Group& group : groups_) group.native->Abort(cause, deadline).IgnoreError();
}

}  // namespace tutti
