#include "engine/call.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/clock.h"
#include "base/wait_watch.h"
#include "engine/call_pool.h"
#include "engine/channel.h"
#include "engine/engine.h"
#include "engine/run.h"

namespace tutti {

Call::Call(std::shared_ptr<const Program> program, Channel& channel, void* scratch)
    : program_(std::move(program)),
      engine_(channel.engine().shared_from_this()),
      run_(engine_->NewRun(*this, channel, *program_, scratch)) {}

Call::~Call() = default;

Call* Call::Create(std::shared_ptr<const Program> program, Channel& channel, void* scratch) {
  return new Call(std::move(program), channel, scratch);
}

bool Call::in_forked_child() const { return engine_->in_forked_child(); }

bool Call::LetGo() {
  if (in_forked_child()) return false;  // the memory of the call is the parent's
  if (!has_one_reference() && references_.fetch_sub(1, std::memory_order_acq_rel) != 1) return false;
  references_.store(1, std::memory_order_relaxed);
  if (pool_ == nullptr) return true;
  failed_runs_.Clear();
  return run_->in_graph() ? !pool_->KeepForGraph(this) : !CallPool::PutBack(this);
}

void Call::Release() {
  if (LetGo()) delete this;
}

void Call::DeleteFromAnyThread() {
  if (program_->stream_order != nullptr) return engine_->FreeLater(this);
  delete this;
}

absl::Status Call::SetBuffers(const void* in, void* out, void* state) {
  in_ = in;
  out_ = out;
  state_ = state;
  return SetBuffersAgain();
}

absl::Status Call::SetBuffersAgain() { return run_->SetBuffers(in_, out_, state_); }

void Call::RefuseNextRun(absl::Status why) { run_->refusal = std::move(why); }

std::int64_t Call::held_bytes() const { return run_->held_bytes(); }

std::uint32_t Call::Submit(const CallOptions& options) {
  options_ = options;
  in_background_.store(options.background, std::memory_order_relaxed);
  if (source() != kAnySource) source_.store(kAnySource, std::memory_order_relaxed);
  const std::uint32_t run = ++runs_started_;
  failed_runs_.BeginRun(run);
  engine_->Submit(*this, options);
  // The caller may end the capture as soon as this function returns.
  if (run_->captured()) {
    if (absl::Status status = WaitUntilEnqueued(run); !status.ok()) failed_runs_.Keep(run, std::move(status));
  }
  return run;
}

absl::Status Call::Wait(std::uint32_t run, bool output_only, std::int64_t end_ns) {
  Milestone& milestone = output_only ? output() : end_;
  if (!milestone.passed(run)) {
    MarkAwaited(run);
    absl::Status status = end_ns == kNeverNanos && WaitsAreWatched() ? WaitWatched(milestone, run)
                                                                     : engine_->Wait(*this, milestone, run, end_ns);
    if (!status.ok()) return status;
  }
  return ResultOf(run);
}

void Call::MarkAwaited(std::uint32_t run) {
  std::uint32_t awaited = awaited_run_.load(std::memory_order_relaxed);
  while (IsAfter(run, awaited) && !awaited_run_.compare_exchange_weak(awaited, run, std::memory_order_relaxed)) {
  }
}

absl::Status Call::WaitOnStream(std::uint32_t run, CUstream_st* stream) {
  if (in_forked_child()) return NotInForkedChild(engine_->options().rank);
  absl::Status status;
  if (program_->stream_order != nullptr && !enqueued_.passed(run)) status = WaitUntilEnqueued(run);
  if (absl::Status result = ResultOf(run); !result.ok()) return result;
  // Also after the error of a watch: the call is on the GPU then.
  status.Update(run_->WaitOnStream(stream));
  return status;
}

absl::Status Call::WaitUntilEnqueued(std::uint32_t run) {
  return WaitsAreWatched() ? WaitWatched(enqueued_, run) : engine_->Wait(*this, enqueued_, run, kNeverNanos);
}

absl::Status Call::WaitWatched(Milestone& milestone, std::uint32_t run) {
  while (true) {
    absl::Status status = engine_->Wait(*this, milestone, run, NanosIn(kWaitWatchPeriod));
    if (!absl::IsDeadlineExceeded(status)) return status;
    const absl::Status look = LookWhileWaiting(engine_->options().rank);
    if (look.ok()) continue;
    // Also where the call has ended meanwhile: whoever gets the error may make no further call, but peers wait for it.
    engine_->AbortIfOpen(run_->channel, look);
    // The buffers of the call are in use until the call has ended, so this thread waits on.
    status = engine_->Wait(*this, milestone, run, kNeverNanos);
    return status.ok() ? look : status;
  }
}

void Call::Finish(const absl::Status& status) {
  if (!status.ok()) {
    failed_runs_.Keep(end_.runs() + 1, status);
    source_.store(kAnySource, std::memory_order_relaxed);
  }
  // A run that has failed may never come to its stream; whoever waits for that finds the error, which is stored.
  if (program_->stream_order != nullptr && enqueued_.runs() == end_.runs()) enqueued_.Pass();
  // A failed run has not passed the milestone of its output: the run passes it here, so that nobody waits for it.
  if (program_->output_steps > 0 && output_.runs() == end_.runs()) output_.Pass();
  end_ns_ = options_.timed ? MonotonicNanos() : 0;
  // A run that the engine does not keep has begun and ended before Submit returns: nobody waits for such a run yet.
  if (!engine_keeps_) return end_.PassUnseen();
  engine_keeps_ = false;  // before the next run may begin
  end_.Pass();
  if (has_listeners_.load(std::memory_order_seq_cst)) TellListeners();
  if (LetGo()) DeleteFromAnyThread();
}

void Call::OnDone(std::uint32_t run, std::function<void(const absl::Status&)> callback) {
  if (done(run)) return Tell(callback, ResultOf(run));
  if (in_forked_child()) return Tell(callback, NotInForkedChild(engine_->options().rank));
  MarkAwaited(run);
  if (!engine_->callbacks().Start()) return Tell(callback, Wait(run, /*output_only=*/false, kNeverNanos));
  // Nobody may be driving a call that its caller has promised to drive: the callback stands for the caller's Wait.
  engine_->WakeThread();
  {
    const MutexLock lock(mutex_);
    callbacks_.push_back({run, std::move(callback)});
    has_listeners_.store(true, std::memory_order_seq_cst);
  }
  if (done(run)) TellListeners();  // Finish may not have seen the callback
}

void Call::AwaitElsewhere(std::uint32_t run) {
  if (in_forked_child()) return;
  MarkAwaited(run);
  if (done(run)) return;
  CallbackThreads::MayBlock();  // perhaps a callback waits, for a later callback
  // The wait begins before it can be ended, by whoever ends the run.
  engine_->BeginEagerWait();
  bool is_first = false;
  bool replaces = false;
  {
    const MutexLock lock(mutex_);
    is_first = !done(run) && awaited_elsewhere_ != run;
    replaces = is_first && awaited_elsewhere_.has_value();  // an earlier run, of whose end TellListeners is to come
    if (is_first) {
      awaited_elsewhere_ = run;
      has_listeners_.store(true, std::memory_order_seq_cst);
    }
  }
  if (!is_first || replaces) engine_->EndEagerWait();
  if (done(run)) TellListeners();  // Finish may not have seen has_listeners_
}

void Call::TellListeners() {
  std::vector<Callback> due;
  bool was_awaited = false;
  {
    const MutexLock lock(mutex_);
    // A later run may have been started, and waited for, since the one that has just ended did.
    const auto not_due = std::stable_partition(callbacks_.begin(), callbacks_.end(),
                                               [this](const Callback& callback) { return done(callback.run); });
    std::move(callbacks_.begin(), not_due, std::back_inserter(due));
    callbacks_.erase(callbacks_.begin(), not_due);
    was_awaited = awaited_elsewhere_.has_value() && done(*awaited_elsewhere_);
    if (was_awaited) awaited_elsewhere_.reset();
    has_listeners_.store(!callbacks_.empty() || awaited_elsewhere_.has_value(), std::memory_order_seq_cst);
  }
  if (was_awaited) engine_->EndEagerWait();
  for (Callback& callback : due) {
    engine_->callbacks().Run(
        [function = std::move(callback.function), status = ResultOf(callback.run)] { Tell(function, status); });
  }
}

}  // namespace tutti
