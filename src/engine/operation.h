// One program with its memory and the state of its current run.
#ifndef TUTTI_ENGINE_OPERATION_H_
#define TUTTI_ENGINE_OPERATION_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "engine/program.h"
#include "tutti/buffer.h"
#include "tutti/transport.h"

namespace tutti {

class Arena;
class Channel;
class Engine;
class OperationPool;

// The first error of an engine; every later call ends with it. Thread-safe.
class StickyStatus {
 public:
  bool ok() const { return !failed_.load(std::memory_order_seq_cst); }
  absl::Status Get() const;
  // Keeps the first error; true when this was it.
  bool Set(const absl::Status& error);

 private:
  std::atomic<bool> failed_{false};
  mutable Mutex mutex_;
  absl::Status status_ TUTTI_GUARDED_BY(mutex_);
};

// Something that every run of an operation comes to once.
class Milestone {
 public:
  bool passed(std::uint32_t run) const {
    return static_cast<std::int32_t>(runs_.load(std::memory_order_acquire) - run) >= 0;
  }
  // How many runs have.
  std::uint32_t runs() const { return runs_.load(std::memory_order_relaxed); }
  // Of the driver: the current run has come here.
  void Pass();
  // Sleeps until `run` has come here, at most `most`.
  void Sleep(std::uint32_t run, absl::Duration most);

 private:
  std::atomic<std::uint32_t> runs_{0};  // futex word
  std::atomic<std::uint32_t> sleepers_{0};
};

// Life: created with its program, started any number of times (one run at a time), deleted or returned to its pool when
// nobody holds it. All memory that a run needs is allocated here, before it.
class Operation {
 public:
  // `scratch`: memory to use instead of the operation's own, unless peers map it; may be null. ResourceExhausted when
  // the arena has no room.
  static absl::StatusOr<Operation*> Create(std::shared_ptr<const Program> program, Channel& channel,
                                           void* scratch = nullptr);

  // Names the memory of the next runs; memory outside the arena is staged when peers must reach it.
  absl::Status SetBuffers(const void* in, void* out, void* state);

  void AddReference() { references_.fetch_add(1, std::memory_order_relaxed); }
  void Release();

  bool done(std::uint32_t run) const { return end.passed(run); }
  // Where the output of a run is final, though peers or state may still need the rest of its steps.
  Milestone& output() { return program_->output_steps > 0 ? output_ : end; }
  void OnDone(std::uint32_t run, std::function<void(const absl::Status&)> callback);
  // Ends the current run, with the sticky error if there is one; called by the driver.
  void Finish();
  // A step that touches the output is complete; called by the driver.
  void CountOutputStep() {
    if (--output_steps_left_ == 0) output_.Pass();
  }
  // How the last run ended.
  absl::Status result() const;

  const Program& program() const { return *program_; }

  // ---- used by the engine's driver ----
  struct MessageCompletion : Completion {
    Operation* operation = nullptr;
    StepId step = 0;
  };

  void PrepareRun();
  void CopyIn();
  void CopyOut();

  Channel& channel;
  Engine& engine;
  const std::shared_ptr<StickyStatus> sticky;
  std::atomic<Operation*> next{nullptr};  // in the submission queue
  Milestone end;
  std::shared_ptr<OperationPool> pool;  // where it returns to; nullptr: it is deleted
  std::uint32_t runs_started = 0;
  bool timed = false;       // of the current run: Finish notes the time
  bool background = false;  // of the current run: nobody polls for it
  std::uint64_t draw = 0;   // of the current run: names its random numbers
  std::int64_t end_ns = 0;  // CLOCK_MONOTONIC; when the last timed run ended
  bool admitted = false;
  bool running = false;
  int lane = -1;
  std::uint64_t lane_run = 0;
  std::uint64_t sequence = 0;  // of its channel, or of messages to its peer
  int last_lane = -1;          // where own scratch was last shared
  std::uint64_t last_lane_run = 0;
  std::int64_t deadline_ns = 0;  // CLOCK_MONOTONIC; 0: not set yet
  std::uint32_t steps_left = 0;
  std::uint32_t messages_left = 0;
  std::vector<std::uint32_t> dependencies_left;
  std::vector<StepId> ready;                   // a stack
  std::vector<StepId> waiting;                 // kWait steps that are not satisfied
  std::vector<MessageCompletion> completions;  // one per step; empty when the program has no messages
  std::vector<std::byte*> bases;
  std::vector<bool> peer_known;  // its announcement of this run has been read
  std::vector<void*> dsts;       // of the step that runs
  std::vector<const void*> srcs;
  std::uint32_t signals = 0;
  Buffer scratch;  // empty: the caller's, the lane's, or none needed
  std::byte* callers_scratch = nullptr;
  Buffer staging_in;
  Buffer staging_out;

 private:
  Operation(std::shared_ptr<const Program> program, Channel& channel);
  void Callback();

  std::atomic<bool> failed_{false};
  const std::shared_ptr<const Program> program_;
  Milestone output_;
  std::uint32_t output_steps_left_ = 0;  // of the current run
  std::atomic<int> references_{1};
  const void* user_in_ = nullptr;
  void* user_out_ = nullptr;
  Mutex callback_mutex_;
  std::function<void(const absl::Status&)> callback_ TUTTI_GUARDED_BY(callback_mutex_);
  std::atomic<bool> has_callback_{false};
};

}  // namespace tutti

#endif  // TUTTI_ENGINE_OPERATION_H_
