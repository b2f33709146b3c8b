// The GPU that an executor uses, and what a channel has there.
#ifndef TUTTI_ENGINE_STREAM_DEVICE_H_
#define TUTTI_ENGINE_STREAM_DEVICE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "engine/program.h"
#include "memory/cuda_runtime.h"
#include "tutti/native_transport.h"

namespace tutti {

// A step that computes, with the device memory of its operands. The spans are valid until the step is enqueued.
struct DeviceStep {
  const Program* program;
  const Instruction* instruction;
  absl::Span<void* const> dsts;
  absl::Span<const void* const> srcs;
  std::uint64_t draw;    // names the random numbers of a codec that rounds at random
  double factor;         // of the call
  std::uint32_t* error;  // device memory: not 0 once a codec has refused the bytes that it was to decode
};

struct StreamDevice {
  const CudaRuntime* cuda = nullptr;
  int index = 0;  // the device's number in this process
  // Enqueues steps of one kind, which are independent of each other, on the stream, and waits for nothing; for
  // kernels::LoadingStream, loads their kernels, for which the host may wait for the device. What the steps refer to
  // may change once the call has returned. After an error some of the steps may be enqueued.
  absl::Status (*compute)(absl::Span<const DeviceStep> steps, CUstream_st* stream) = nullptr;
  // Enqueues the steps of a Recode, which follow each other, as one launch, or loads its kernel.
  absl::Status (*recode)(absl::Span<const DeviceStep> steps, CUstream_st* stream) = nullptr;
};

// The stream of one channel, and the transports that perform collectives there: of all ranks, and of the groups that
// plans name (Plan::groups). A channel has a stream of its own, because ranks may make the calls of different channels
// in different orders, and a stream would let the second wait for the first.
class ChannelOnDevice {
 public:
  // `native` may be null where the group has one rank.
  static absl::StatusOr<std::unique_ptr<ChannelOnDevice>> Make(const StreamDevice& device,
                                                               std::unique_ptr<NativeTransport> native);
  // What was enqueued has ended, or was aborted. Waits for up to two seconds until the peers have got what was sent.
  ~ChannelOnDevice();
  ChannelOnDevice(const ChannelOnDevice&) = delete;
  ChannelOnDevice& operator=(const ChannelOnDevice&) = delete;

  // Gives the native steps of `group` their transport, for all programs of the channel from now on.
  void Add(std::vector<Rank> group, std::unique_ptr<NativeTransport> native) {
    groups_.push_back({std::move(group), std::move(native)});
  }

  CUstream_st* stream() const { return stream_; }
  // Called when what is on the stream has been aborted and may yet never end: from then on memory of the device is left
  // behind (memory/stuck_devices.h).
  void GiveUp();
  // What is recorded into CUDA graphs has streams of its own, one for each capture under way, so that other calls can
  // use the first one meanwhile, and an error word that all graphs share (see DeviceStep::error), with a copy for the
  // host.
  struct ForGraphs {
    CUstream_st* stream = nullptr;
    std::uint32_t* error = nullptr;       // on the device
    std::uint32_t* error_here = nullptr;  // in pinned memory
  };
  // For capture number `id` (CudaRuntime::capture_of).
  absl::StatusOr<ForGraphs> ForCapture(unsigned long long id);
  // Whether a codec has refused bytes while a graph ran.
  bool graph_has_failed() const {
    return graph_error_here_ != nullptr && std::atomic_ref(*graph_error_here_).load() != 0;
  }
  NativeTransport* native() const { return native_.get(); }
  // The transport of the ranks of `group`, or, where that is empty, of all; null: there is none.
  NativeTransport* NativeOf(absl::Span<const Rank> group) const;
  // False while what was enqueued last may not be on the stream (NativeTransport::Ready). Also tells errors of what
  // runs there.
  absl::StatusOr<bool> Ready();
  // Whether a second has passed since the first call: long enough for the host to hear which rank has gone, where the
  // native transport only says that one has.
  bool HasAwaitedNews();
  // Aborts all transports.
  void Abort(const absl::Status& cause, absl::Time deadline);
  // After Abort: the ranks of the channel of which messages are under way; see NativeTransport::Unfinished.
  std::vector<Rank> Unfinished() const { return native_ != nullptr ? native_->Unfinished() : std::vector<Rank>(); }

 private:
  ChannelOnDevice(const StreamDevice& device, std::unique_ptr<NativeTransport> native)
      : device_(device), native_(std::move(native)) {}

  struct Group {
    std::vector<Rank> ranks;
    std::unique_ptr<NativeTransport> native;
  };

  const StreamDevice device_;
  const std::unique_ptr<NativeTransport> native_;
  std::vector<Group> groups_;  // in the order in which they were made, which is the same on all ranks of two of them
  CUstream_st* stream_ = nullptr;
  bool given_up_ = false;
  std::int64_t news_end_ns_ = 0;  // of HasAwaitedNews, on CLOCK_MONOTONIC; 0: it has not been called
  std::vector<CUstream_st*> graph_streams_;
  std::uint32_t* graph_error_ = nullptr;
  std::uint32_t* graph_error_here_ = nullptr;
};

}  // namespace tutti

#endif  // TUTTI_ENGINE_STREAM_DEVICE_H_
