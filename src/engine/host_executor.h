// Runs plans over host memory: issues the steps whose dependencies are complete, and collects completions.
#ifndef TUTTI_ENGINE_HOST_EXECUTOR_H_
#define TUTTI_ENGINE_HOST_EXECUTOR_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "engine/channel.h"
#include "engine/control_block.h"
#include "engine/executor.h"
#include "engine/host_run.h"
#include "engine/past_cache_choice.h"
#include "tutti/transport.h"

namespace tutti {

class HostExecutor final : public Executor {
 public:
  // `presence` is this rank's own. `may_spin`: see EngineOptions.
  HostExecutor(Transport& transport, Presence& presence, bool may_spin);

  absl::Status MakeRunnable(const Program& program) const override;
  std::unique_ptr<Run> NewRun(Call& call, Channel& channel, const Program& program, void* scratch) override;
  void Add(Run& run) override;
  bool HasPending(const Channel& channel) const override;
  bool RunAtOnce(Run& run) override;
  Polled Poll() override;
  const absl::Status& error() const override { return error_; }
  Channel& failed_channel() const override { return *failed_channel_; }
  std::vector<Rank> MessagePeers(const Channel& channel) const override;
  void Abandon(Channel& /*channel*/, const absl::Status& /*cause*/) override {}
  bool HasLetGo(const Channel& /*channel*/) const override { return true; }
  void End(Channel& channel, const absl::Status& cause) override;

  bool Uses(const Channel& channel) const override;
  bool idle() const override { return active_.empty() && pending_.empty(); }
  bool needs_driver() const override;
  bool waits_for_messages() const override { return messages_ > 0; }
  bool waits_for_signals() const override;
  bool waits_for_completions() const override;
  bool all_in_background() const override { return in_foreground_ == 0; }
  absl::Span<Run* const> active() const override { return active_; }

  std::int64_t wire_bytes() const override { return wire_bytes_.load(std::memory_order_relaxed); }
  std::int64_t staged_bytes() const override { return staged_bytes_.load(std::memory_order_relaxed); }
  std::int64_t calls() const override { return calls_.load(std::memory_order_relaxed); }

  // The completion of every message of a HostRun.
  static void OnMessage(Completion* completion, const absl::Status& status);

 private:
  class PeerAccess;

  bool AdmitPending();
  // False when `run` must wait for its lane, or its channel fails.
  static bool Admit(Run& run) { return !run.channel.failure.begun && run.channel.Admit(run); }
  Polled Advance(HostRun& run);
  // Takes the steps of a short run in the order of the plan, until one cannot be taken yet or fails. Returns that step,
  // or the number of steps.
  StepId TakeStepsInOrder(HostRun& run);
  // Ends `run` if all its steps are complete; kMoved: the run has ended.
  Polled EndIfComplete(HostRun& run);
  // An error when a peer has made another call, or has left without the call. Only for a run without waits: a run that
  // waits compares the calls when it sees the signals, and the engine tells it who has left.
  static absl::Status CheckPeersUnlessAwaited(const HostRun& run);
  // Ends a run whose steps are complete, or that was refused.
  void Conclude(HostRun& run);
  absl::Status Execute(HostRun& run, StepId step);
  // Carries out a step that is a signal or computes.
  absl::Status Compute(HostRun& run, StepId step);
  // The source of `step`, a copy.
  static const Operand& SourceOf(const HostRun& run, StepId step) {
    return run.current->srcs(run.current->instructions[step])[0];
  }
  // Whether `step`, with Instruction::reads_process, copies from the process of a peer, and not from mapped memory.
  static bool IsInProcess(const HostRun& run, StepId step);
  // Carries out such a step; false: the process cannot be read.
  bool CopyFromProcess(HostRun& run, StepId step);
  void PostMessage(HostRun& run, StepId step);
  // Makes `run`, which `peer` has refused, end with an error that leaves the group usable.
  void RefusedBy(HostRun& run, Rank peer);
  // True as soon as the signal that `wait` awaits may have been made; false after `looks` looks.
  static bool LookFor(const HostRun& run, const Instruction& wait, int looks);
  // Looks for the signal of a short run longer than others do, because a run that is given up here must go on in the
  // engine's loop, which takes more time, and its caller waits anyway: without a pause where this rank may spin, and
  // otherwise between turns of other threads, for which `access` ends.
  bool AwaitSignal(HostRun& run, const Instruction& wait, PeerAccess& access) const;
  // Completes the waits whose signals have been made. kMoved: the run has been refused by a peer.
  Polled LookForSignals(HostRun& run);
  void Finish(HostRun& run, const absl::Status& status);
  Polled Fail(HostRun& run, absl::Status error) {
    error_ = std::move(error);
    failed_channel_ = &run.channel;
    return Polled::kFailed;
  }

  static HostRun& HostRunOf(Run* run) { return static_cast<HostRun&>(*run); }
  static void Count(std::atomic<std::int64_t>& counter, std::int64_t more) {
    counter.store(counter.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
  }

  Transport& transport_;
  Presence& presence_;
  const bool may_spin_;
  std::vector<Run*> active_;
  std::vector<Run*> pending_;
  PastCacheChoice past_cache_;  // of copies to scratch and to staging
  int in_foreground_ = 0;       // runs that are not in the background
  std::int64_t messages_ = 0;   // sends and receives under way
  absl::Status error_;
  Channel* failed_channel_ = nullptr;
  // Written by the driver, read by any thread.
  std::atomic<std::int64_t> wire_bytes_{0};
  std::atomic<std::int64_t> staged_bytes_{0};
  std::atomic<std::int64_t> calls_{0};
};

}  // namespace tutti

#endif  // TUTTI_ENGINE_HOST_EXECUTOR_H_
