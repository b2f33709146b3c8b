// A call as the threads that submitted it see it. How a call is carried out is the matter of its Run (run.h).
#ifndef TUTTI_ENGINE_CALL_H_
#define TUTTI_ENGINE_CALL_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "engine/failed_runs.h"
#include "engine/milestone.h"
#include "engine/program.h"
#include "tutti/call_options.h"

struct CUstream_st;  // NOLINT(readability-identifier-naming): CUDA's own handle of a stream

namespace tutti {

class CallPool;
class Channel;
class Engine;
class Run;

// A program on a channel that can be run any number of times, one run at a time. Runs are numbered from 1.
//
// Life: whoever holds a reference keeps the call: its maker, each Work of it, and the engine while a run is under way.
// When the last reference goes, the call returns to its pool, or is deleted when it has no pool or the pool is closed.
class Call {
 public:
  // A call with one reference. `scratch`: memory for the program's scratch that the caller lends; null: none.
  static Call* Create(std::shared_ptr<const Program> program, Channel& channel, void* scratch = nullptr);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  void AddReference() {
    if (has_one_reference()) return references_.store(2, std::memory_order_relaxed);  // no other reference exists
    references_.fetch_add(1, std::memory_order_relaxed);
  }
  void Release();
  // Deletes the call, which nobody uses any more; called by any thread, perhaps the driver: another thread deletes a
  // call of a device, some time later (Engine::FreeLater).
  void DeleteFromAnyThread();
  // From now on `pool` takes the call back whenever its last reference goes.
  void ReturnTo(std::shared_ptr<CallPool> pool) { pool_ = std::move(pool); }
  CallPool* pool() const { return pool_.get(); }

  // ---- the thread that submits, while no run is under way ----
  // Names the memory of the next runs: see Run::SetBuffers.
  absl::Status SetBuffers(const void* in, void* out, void* state);
  // Names the memory of the last run again: the arena may have withdrawn the memory since (see Arena::Withdraw).
  absl::Status SetBuffersAgain();
  // Remembers input, output and in_place of the next run as the caller gave them: see was_given.
  void SetGiven(const void* in, const void* out, bool in_place) { given_ = {in, out, in_place}; }
  // Whether the caller named the same for the last run.
  bool was_given(const void* in, const void* out, bool in_place) const { return given_ == Given{in, out, in_place}; }
  // Makes the next run end with an error on all ranks: on this rank with `why`, the error of SetBuffers, and on its
  // peers with ResourceExhausted that names this rank. The program must use a lane, through which the peers hear of the
  // refusal. OK takes an earlier refusal back.
  void RefuseNextRun(absl::Status why);
  // Starts a run and returns its number. The run keeps the call until it has ended.
  std::uint32_t Submit(const CallOptions& options);
  // Whether this process is a forked child of the one that made the call, which alone may use the call.
  bool in_forked_child() const;
  // Whether a run is under way.
  bool busy() const { return !end_.passed(runs_started_); }

  // ---- any thread ----
  bool done(std::uint32_t run) const { return end_.passed(run); }
  // Waits until `run` has ended, or, with `output_only`, until its output is final; at most until `end_ns`
  // (CLOCK_MONOTONIC). DeadlineExceeded when the run has not come so far by then; the run goes on.
  absl::Status Wait(std::uint32_t run, bool output_only, std::int64_t end_ns);
  // Lets what is enqueued on `stream` from now on wait for `run`: see Work::WaitOnStream.
  absl::Status WaitOnStream(std::uint32_t run, CUstream_st* stream);
  // How the run that ended last has ended.
  absl::Status result() const { return ResultOf(end_.runs()); }
  // Calls `callback` when `run` has ended, once, on a thread of the engine for callbacks; at once, on this thread, when
  // it has ended already.
  void OnDone(std::uint32_t run, std::function<void(const absl::Status&)> callback);
  // Calls `callback` of a call that has ended with `status`. A callback that throws ends the process, on whatever
  // thread it runs.
  static void Tell(const std::function<void(const absl::Status&)>& callback, const absl::Status& status) noexcept {
    callback(status);
  }
  // Whether somebody waits for the run under way, here or elsewhere, or has a callback for it.
  bool awaited() const { return awaited_run_.load(std::memory_order_relaxed) == runs_started_; }
  // Declares that somebody waits for `run` elsewhere: until the run has ended, the engine's thread polls as a thread in
  // Wait does.
  void AwaitElsewhere(std::uint32_t run);
  // The rank that sent the message, where the call is a Recv whose last run ended OK; otherwise kAnySource.
  Rank source() const { return source_.load(std::memory_order_relaxed); }
  // Whether the run that was started last is in the background: other threads may still wait for an earlier one.
  bool in_background() const { return in_background_.load(std::memory_order_relaxed); }
  // CLOCK_MONOTONIC when the last timed run ended.
  std::int64_t end_ns() const { return end_ns_; }
  const Program& program() const { return *program_; }
  // Bytes that the call holds beside the caller's buffers, most of them in the arena.
  std::int64_t held_bytes() const;

  // ---- the engine's driver ----
  // The options of the current run.
  const CallOptions& options() const { return options_; }
  Run& run() { return *run_; }
  // Says that the output of the current run has its final values, for a program whose output_steps is not 0.
  void MarkOutputFinal() { output_.Pass(); }
  // Says that the message of the call, a Send or Recv, has ended OK, and that `rank` is at its other end.
  void SetSource(Rank rank) {
    if (program_->plan.spec.collective == Collective::kRecv) source_.store(rank, std::memory_order_relaxed);
  }
  // Adds a reference, which Finish gives back. A run that begins and ends before Submit returns needs none. Submit
  // calls KeepForEngine as well, before the driver knows of the run.
  void KeepForEngine() {
    AddReference();
    engine_keeps_ = true;
  }
  // Says that the current run is on its stream: see WaitOnStream.
  void MarkEnqueued() { enqueued_.Pass(); }
  // Ends the current run with `status`.
  void Finish(const absl::Status& status);

  std::atomic<Call*> next_submitted{nullptr};  // the next call in the submission queue

 private:
  struct Given {
    const void* in = nullptr;
    const void* out = nullptr;
    bool in_place = false;

    bool operator==(const Given&) const = default;
  };

  struct Callback {
    std::uint32_t run;
    std::function<void(const absl::Status&)> function;
  };

  Call(std::shared_ptr<const Program> program, Channel& channel, void* scratch);
  // Gives a reference back; true when it was the last one, and the call is to be deleted.
  bool LetGo();
  bool has_one_reference() const { return references_.load(std::memory_order_acquire) == 1; }
  // Remembers that somebody waits for `run`. Of several threads that wait for different runs the latest run counts.
  void MarkAwaited(std::uint32_t run);
  // Waits without a deadline, in a program that has set a watch: see SetWaitWatch.
  absl::Status WaitWatched(Milestone& milestone, std::uint32_t run);
  absl::Status WaitUntilEnqueued(std::uint32_t run);
  Milestone& output() { return program_->output_steps > 0 ? output_ : end_; }
  // How `run` has ended; OK for a run that has not ended. FailedPrecondition where that is forgotten.
  absl::Status ResultOf(std::uint32_t run) const { return failed_runs_.ResultOf(run, program_->plan.name); }
  // Hands the callbacks of runs that have ended to the engine, and ends what AwaitElsewhere has begun for such a run.
  void TellListeners();

  const std::shared_ptr<const Program> program_;
  // Outlives the communicator together with this call, so that a thread in Work::Wait finds it.
  const std::shared_ptr<Engine> engine_;
  const std::unique_ptr<Run> run_;
  std::shared_ptr<CallPool> pool_;
  std::atomic<int> references_{1};
  bool engine_keeps_ = false;  // see KeepForEngine
  const void* in_ = nullptr;   // what SetBuffers was given last
  void* out_ = nullptr;
  void* state_ = nullptr;
  Given given_;
  std::uint32_t runs_started_ = 0;
  std::atomic<std::uint32_t> awaited_run_{0};  // the last run that somebody has waited for
  CallOptions options_;
  std::atomic<bool> in_background_{false};
  Milestone output_;
  Milestone enqueued_;  // of programs with a stream_order
  Milestone end_;
  std::int64_t end_ns_ = 0;
  std::atomic<Rank> source_{kAnySource};

  FailedRuns failed_runs_;
  std::atomic<bool> has_listeners_{false};
  mutable Mutex mutex_;
  std::vector<Callback> callbacks_ TUTTI_GUARDED_BY(mutex_);
  std::optional<std::uint32_t> awaited_elsewhere_ TUTTI_GUARDED_BY(mutex_);  // the run of the last AwaitElsewhere
};

}  // namespace tutti

#endif  // TUTTI_ENGINE_CALL_H_
