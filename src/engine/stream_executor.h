// Runs plans over the memory of a GPU: enqueues the steps of a run, in the order of the calls, on the stream of the
// run's channel. The stream carries them out while the host does something else, and an event says when it has.
#ifndef TUTTI_ENGINE_STREAM_EXECUTOR_H_
#define TUTTI_ENGINE_STREAM_EXECUTOR_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "engine/channel.h"
#include "engine/executor.h"
#include "engine/stream_device.h"
#include "engine/stream_run.h"

namespace tutti {

// Programs have a Program::stream_order, and channels a ChannelOnDevice. No function waits for the device, but for
// Abandon, which gives the native transport two seconds to give up, MakeRunnable, whose kernels CUDA loads, the end of
// the last reference to a call, whose scratch is freed, and the first capture of a channel, which waits for four bytes
// to be zero.
class StreamExecutor final : public Executor {
 public:
  explicit StreamExecutor(const StreamDevice& device) : device_(device) {}

  // Sets the device for good: then no scope of this thread has anything to do.
  void BeginThread() override { device_.cuda->set_device(device_.index); }
  absl::Status MakeRunnable(const Program& program) const override;
  std::unique_ptr<Run> NewRun(Call& call, Channel& channel, const Program& program, void* scratch) override;
  void Add(Run& run) override;
  bool HasPending(const Channel& channel) const override;
  bool RunAtOnce(Run& run) override;
  Polled Poll() override;
  const absl::Status& error() const override { return error_; }
  Channel& failed_channel() const override { return *failed_channel_; }
  std::vector<Rank> MessagePeers(const Channel& channel) const override;
  void Abandon(Channel& channel, const absl::Status& cause) override;
  bool HasLetGo(const Channel& channel) const override;
  void End(Channel& channel, const absl::Status& cause) override;

  bool Uses(const Channel& channel) const override;
  bool idle() const override { return active_.empty() && pending_.empty(); }
  bool needs_driver() const override { return !idle(); }
  // Nobody rings when an event of the device is reached; what is submitted rings.
  bool waits_for_messages() const override { return false; }
  bool polls_device() const override { return !idle(); }
  bool waits_for_signals() const override { return !idle(); }
  bool waits_for_completions() const override { return false; }
  bool all_in_background() const override { return in_foreground_ == 0; }
  absl::Span<Run* const> active() const override { return active_; }

  std::int64_t wire_bytes() const override { return wire_bytes_.load(std::memory_order_relaxed); }
  std::int64_t staged_bytes() const override { return 0; }
  std::int64_t calls() const override { return calls_.load(std::memory_order_relaxed); }

 private:
  // Gives `run` its place in the order of calls, unless its channel has enough on its stream, or fails.
  bool Admit(Run& run) const;
  // With the device set, enqueues what can be enqueued of `run`, which is the first of its channel that is not
  // enqueued.
  Polled Enqueue(StreamRun& run);
  absl::Status Begin(StreamRun& run);
  absl::Status LaunchNext(StreamRun& run);
  absl::Status LaunchMessages(StreamRun& run);
  static NativeCall NativeCallOf(const StreamRun& run, const Instruction& instruction);
  absl::Status LaunchNative(StreamRun& run, absl::Span<const StepId> steps);
  // Lists the steps in run.steps_, as the functions of StreamDevice take them.
  static void ListSteps(StreamRun& run, absl::Span<const StepId> steps);
  absl::Status MarkEnd(StreamRun& run);
  // Ends `run`, which is enqueued, if the device has come to its end.
  Polled EndIfReached(StreamRun& run);
  Polled EndIfCaptured(const StreamRun& run);
  static absl::Status GraphHasFailed(const StreamRun& run);
  void Finish(StreamRun& run, const absl::Status& status);
  Polled Fail(const StreamRun& run, absl::Status error);
  // Fails with `error` of the native transport, or with what the channel knows of its cause. kNothing while the engine
  // may still hear which rank is the cause, and fail the channel first.
  Polled FailByNative(const StreamRun& run, const absl::Status& error);
  static absl::Status WithRanksThatLeft(const StreamRun& run, const absl::Status& error);
  absl::Status StatusOf(CudaError error, const StreamRun& run, absl::string_view what) const;

  static StreamRun& StreamRunOf(Run* run) { return static_cast<StreamRun&>(*run); }
  static const StreamRun& StreamRunOf(const Run* run) { return static_cast<const StreamRun&>(*run); }
  static void Count(std::atomic<std::int64_t>& counter, std::int64_t more) {
    counter.store(counter.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
  }

  const StreamDevice device_;
  std::vector<Run*> active_;
  std::vector<Run*> pending_;
  // Lists of Poll, which keep their memory, so that Poll allocates nothing after the first calls.
  std::vector<const Channel*> channels_;
  std::vector<Run*> ended_;
  int in_foreground_ = 0;
  absl::Status error_;
  Channel* failed_channel_ = nullptr;
  // Written by the driver, read by any thread.
  std::atomic<std::int64_t> wire_bytes_{0};
  std::atomic<std::int64_t> calls_{0};
};

}  // namespace tutti

#endif  // TUTTI_ENGINE_STREAM_EXECUTOR_H_
