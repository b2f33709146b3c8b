// The stream executor's record of one call: the device memory of the call, and how much of its current run is enqueued.
#ifndef TUTTI_ENGINE_STREAM_RUN_H_
#define TUTTI_ENGINE_STREAM_RUN_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "engine/run.h"
#include "engine/stream_device.h"

namespace tutti {

// Everything that a run needs is allocated when it is given its buffers for the first time.
class StreamRun final : public Run {
 public:
  StreamRun(const StreamDevice& device, Call& call, Channel& channel, const Program& program);
  // No run is under way: nothing on the device uses the memory of the call, unless the device is stuck.
  ~StreamRun() override;

  // InvalidArgument for memory that is not the device's.
  absl::Status SetBuffers(const void* in, void* out, void* state) override;
  // Names the sends and receives of the next run, for a program that takes them (Program::takes_messages), once it has
  // been given buffers: none. The calls are valid (NativeTransport), and each rank sends to itself what it receives
  // from itself, in the same order. InvalidArgument for memory that is not the device's.
  absl::Status SetMessages(absl::Span<const NativeCall> calls) override;
  std::int64_t held_bytes() const override { return program.plan.scratch_bytes; }
  // Marks the place on the caller's stream (CallOptions::stream) after which the input is there. InvalidArgument for a
  // stream that is none of the device's.
  absl::Status OnSubmit(const CallOptions& options) override;
  bool captured() const override { return captured_; }
  bool in_graph() const override { return in_graph_; }
  absl::Status WaitOnStream(CUstream_st* stream) override;

  bool started() const override { return stage_ != Stage::kQueued; }
  bool enqueued() const override { return stage_ == Stage::kEnqueued; }
  absl::Span<const StreamMessage> stream_messages() const override { return messages_; }
  std::uint32_t steps_left() const override;
  std::optional<Blocker> FindBlocker(absl::FunctionRef<bool(const Blocker&)> matches) const override;
  absl::Span<std::byte> output_lent_to_peers() const override { return {}; }

 private:
  friend class StreamExecutor;

  enum class Stage : std::uint8_t { kQueued, kBegun, kEnqueued };

  // Lets the lists of a launch hold that of `steps`.
  void MakeRoomFor(absl::Span<const StepId> steps);
  // The steps of all launches of `recode`, which lie side by side.
  absl::Span<const StepId> StepsOf(const Recode& recode) const;
  absl::Status Allocate();
  // OK where `memory` is null or of the device.
  absl::Status CheckMemory(const void* memory, absl::string_view what) const;
  std::byte* AddressOf(const Operand& operand) const { return bases[operand.base] + operand.offset; }
  // Whether `error`, of a call of CUDA with a stream of the caller's, comes from that stream and not from the device.
  bool IsOfStream(CudaError error) const;
  // Lists the messages of a plan that its rank has made without those of the others.
  void ListMessages();
  // The launches of a run: those of the program's order, or one with the messages that were given.
  std::size_t launches() const { return program.takes_messages ? 1 : program.stream_order->size(); }

  const StreamDevice& device_;
  const bool decodes_;  // some step may refuse bytes: the run has error words
  Stage stage_ = Stage::kQueued;
  std::size_t next_launch_ = 0;
  std::size_t next_recode_ = 0;        // in Program::recodes
  CUevent_st* input_ready_ = nullptr;  // on the caller's stream
  bool captured_ = false;  // the caller's stream is being captured: the launches are recorded into its CUDA graph
  unsigned long long capture_id_ = 0;  // see CudaRuntime::capture_of
  bool in_graph_ = false;              // the launches of some run were
  CUevent_st* end_ = nullptr;
  void* scratch_ = nullptr;
  std::uint32_t* error_ = nullptr;       // on the device, see DeviceStep
  std::uint32_t* error_here_ = nullptr;  // pinned memory, with a copy of the error at the end
  // The stream of the run, and the two error words that it uses: of a run in a graph, those of ChannelOnDevice.
  CUstream_st* stream_ = nullptr;
  std::uint32_t* word_ = nullptr;
  std::uint32_t* word_here_ = nullptr;
  std::vector<StreamMessage> messages_;
  std::vector<NativeCall> given_;  // see SetMessages; without those between the rank and itself
  struct CopyToSelf {
    void* dst;
    const void* src;
    std::size_t bytes;
  };
  std::vector<CopyToSelf> given_to_self_;
  // The launch that is being enqueued: the addresses of all its operands, and its steps or native calls.
  std::vector<void*> dsts_;
  std::vector<const void*> srcs_;
  std::vector<DeviceStep> steps_;
  std::vector<NativeCall> natives_;
};

}  // namespace tutti

#endif  // TUTTI_ENGINE_STREAM_RUN_H_
