#include "sync/async_average.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/wait_watch.h"
#include "sync/count_wait.h"

namespace tutti {
namespace {

// The answers of a rank about the next round; all ranks follow the least answer.
constexpr std::int32_t kStop = 0;
constexpr std::int32_t kMeet = 1;
constexpr std::int32_t kSkip = 2;
constexpr std::int32_t kGo = 3;

constexpr std::int32_t kNoRank = std::numeric_limits<std::int32_t>::max();
constexpr std::int32_t kSomeRank = kNoRank - 1;

// How often a background thread asks between two rounds whether its peers live.
constexpr absl::Duration kStatusPeriod = absl::Seconds(1);

// Adds the traffic of a round to `to`, but not the background thread's wait, which delays no training.
void AddExchanged(const SyncStatistics& from, SyncStatistics& to) {
  to.wire_bytes += from.wire_bytes;
  to.payload_bytes += from.payload_bytes;
  to.communication += from.communication;
  to.engine_cpu += from.engine_cpu;
}

}  // namespace

AsyncAverage::AsyncAverage(const Caller& caller, Communicator& training, std::unique_ptr<Communicator> communicator,
                           std::unique_ptr<WeightBuckets> weights, absl::Duration interval, std::int64_t max_staleness)
    : caller_(caller),
      training_(training),
      communicator_(std::move(communicator)),
      weights_(std::move(weights)),
      interval_(interval),
      max_staleness_(max_staleness),
      thread_([this] {
        weights_->memory().BeginThread();
        while (Round()) {
        }
      }) {}

AsyncAverage::~AsyncAverage() { Stop(); }

absl::Status AsyncAverage::Step(SyncStatistics& statistics) {
  if (!maker_.is_this()) return NotInForkedChild(communicator_->rank());
  ++age_;
  const bool is_bounded = max_staleness_ > 0;
  const bool is_due = is_bounded && age_ >= max_staleness_;
  bool applies = false;
  {
    MutexLock lock(mutex_);
    stepped_ns_ = MonotonicNanos();
    if (is_due && snapshot_ == Snapshot::kTravels) {
      const std::int64_t begin_ns = MonotonicNanos();
      WaitForRound([this]() TUTTI_REQUIRES(mutex_) { return snapshot_ != Snapshot::kTravels; });
      statistics.exposed += absl::Nanoseconds(MonotonicNanos() - begin_ns);
    }
    if (!error_.ok()) return error_;
    // A pause does not lift the bound on staleness: an average of a round that began before the pause is still applied
    // within the bound.
    applies = snapshot_ == Snapshot::kAveraged && (!paused_ || is_due);
    const bool is_half_stale = is_bounded && age_ >= max_staleness_ - max_staleness_ / 2;
    const bool snaps = Snaps(is_half_stale);
    // An average that has arrived is applied even when no round follows.
    if (!applies && (!snaps || ended_)) return absl::OkStatus();
    if (snaps) snapshot_ = Snapshot::kNone;
    AddExchanged(std::exchange(statistics_, {}), statistics);
  }
  if (applies) {
    weights_->Correct();
  } else {
    weights_->TakeSnapshot();
    age_ = 0;
  }
  MutexLock lock(mutex_);
  snapshot_ = !applies && wanted_ ? Snapshot::kTaken : Snapshot::kNone;
  missed_ = false;
  changed_.NotifyAll();
  return absl::OkStatus();
}

bool AsyncAverage::Snaps(bool is_half_stale) const {
  if (snapshot_ == Snapshot::kNone) return wanted_ && !paused_;
  return snapshot_ == Snapshot::kTaken && (is_half_stale || (missed_ && !paused_));
}

template <typename Predicate>
void AsyncAverage::WaitForRound(Predicate predicate) {
  while (!changed_.WaitUntil(mutex_, NanosIn(kWaitWatchPeriod), predicate)) {
    mutex_.Unlock();
    if (absl::Status look = LookWhileWaiting(communicator_->rank()); !look.ok()) communicator_->Abort(look);
    mutex_.Lock();
  }
}

AsyncAverage::Snapshot AsyncAverage::TakeRound() {
  WaitForRound([this]() TUTTI_REQUIRES(mutex_) { return !promised_; });
  return std::exchange(snapshot_, Snapshot::kNone);
}

absl::Status AsyncAverage::FinishRound(SyncStatistics& statistics) {
  if (!maker_.is_this()) return NotInForkedChild(communicator_->rank());
  MutexLock lock(mutex_);
  const std::int64_t begin_ns = MonotonicNanos();
  const Snapshot found = TakeRound();
  statistics.exposed += absl::Nanoseconds(MonotonicNanos() - begin_ns);
  if (found == Snapshot::kAveraged) weights_->Correct();
  AddExchanged(std::exchange(statistics_, {}), statistics);
  return error_;
}

void AsyncAverage::ForgetRound() {
  if (!maker_.is_this()) return;
  MutexLock lock(mutex_);
  (void)TakeRound();
}

absl::Status AsyncAverage::Meet(SyncStatistics& statistics) {
  if (!maker_.is_this()) return NotInForkedChild(communicator_->rank());
  const std::int64_t begin_ns = MonotonicNanos();
  MutexLock lock(mutex_);
  meets_ = !ended_;
  changed_.NotifyAll();
  // The predicate is called at least once in each period of the watch, so that an error of the training's communicator
  // ends the wait.
  WaitForRound([this]() TUTTI_REQUIRES(mutex_) { return !meets_ || !training_.status().ok(); });
  meets_ = false;
  CountWait(begin_ns, statistics);
  return error_;
}

void AsyncAverage::Pause() {
  if (!maker_.is_this()) return;
  MutexLock lock(mutex_);
  paused_ = true;
}

void AsyncAverage::Resume() {
  if (!maker_.is_this()) return;
  MutexLock lock(mutex_);
  paused_ = false;
  if (snapshot_ == Snapshot::kTaken && !promised_) snapshot_ = Snapshot::kNone;
}

void AsyncAverage::Stop() {
  if (!maker_.is_this()) return;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.NotifyAll();
  if (thread_.joinable()) thread_.join();
}

absl::Status AsyncAverage::status() {
  if (!maker_.is_this()) return NotInForkedChild(communicator_->rank());
  MutexLock lock(mutex_);
  return error_;
}

AsyncAverage::Answer AsyncAverage::NextAnswer() {
  MutexLock lock(mutex_);
  const auto has_snapshot = [this]() TUTTI_REQUIRES(mutex_) { return !paused_ && snapshot_ == Snapshot::kTaken; };
  const std::int64_t end_ns = NanosIn(interval_);
  const auto is_ready = [&]() TUTTI_REQUIRES(mutex_) { return stopping_ || meets_ || has_snapshot(); };
  while (!changed_.WaitUntil(mutex_, std::min(end_ns, NanosIn(kStatusPeriod)), is_ready) && MonotonicNanos() < end_ns &&
         communicator_->status().ok()) {
  }
  if (stopping_) return {kStop, kSomeRank};
  if (meets_) return {kMeet, kNoRank};
  promised_ = has_snapshot();
  return {promised_ ? kGo : kSkip, IsLate() ? communicator_->rank() : kSomeRank};
}

bool AsyncAverage::IsLate() const {
  if (awaited_ns_ == 0) return false;
  return MonotonicNanos() > NanosAfter(std::max(awaited_ns_, stepped_ns_), communicator_->timeout());
}

void AsyncAverage::SendSnapshot() {
  MutexLock lock(mutex_);
  // The training thread may be about to take the snapshot anew.
  changed_.Wait(mutex_, [this]() TUTTI_REQUIRES(mutex_) { return snapshot_ == Snapshot::kTaken; });
  snapshot_ = Snapshot::kTravels;
}

absl::StatusOr<AsyncAverage::Answer> AsyncAverage::Agree(Answer answer, const CallOptions& call) {
  static_assert(sizeof(Answer) == 2 * sizeof(std::int32_t));
  Answer least = answer;
  Work agreement = communicator_->AllReduce(&least, &least, 2, DType::kI32, ReduceOp::kMin, call);
  if (absl::Status status = agreement.Wait(); !status.ok()) return status;
  if (least.trainer < kSomeRank) {
    return absl::DeadlineExceededError(absl::StrCat("rank ", least.trainer, " has made no step for ",
                                                    absl::FormatDuration(communicator_->timeout()),
                                                    ", while another rank waits for it in Flush; it may wait in "
                                                    "another call"));
  }
  return least;
}

bool AsyncAverage::Round() {
  const std::int64_t begin_ns = ThreadCpuNanos();
  const CallOptions call = caller_.Sign(Purpose::kStep, ++rounds_, {.caller_drives = true, .background = true});
  const absl::StatusOr<Answer> agreed = Agree(NextAnswer(), call);
  absl::Status status = agreed.status();
  SyncStatistics statistics;
  if (status.ok() && agreed->wish == kGo) {
    SendSnapshot();
    weights_->Launch(0, /*step=*/0, call);
    status = weights_->Finish(statistics);
  }
  if (!status.ok()) training_.Abort(status);
  statistics.engine_cpu = absl::Nanoseconds(ThreadCpuNanos() - begin_ns);
  MutexLock lock(mutex_);
  AddExchanged(statistics, statistics_);
  EndRound(status, status.ok() ? *agreed : Answer{kStop, kSomeRank});
  changed_.NotifyAll();
  return !ended_;
}

void AsyncAverage::EndRound(const absl::Status& status, const Answer& least) {
  error_ = status;
  ended_ = least.wish == kStop;
  wanted_ = least.wish == kSkip;
  missed_ = promised_ && wanted_;
  promised_ = false;
  if (snapshot_ == Snapshot::kTravels) {
    snapshot_ = status.ok() ? Snapshot::kAveraged : Snapshot::kNone;
  } else if (snapshot_ == Snapshot::kTaken && !wanted_) {
    snapshot_ = Snapshot::kNone;
  }
  const bool is_awaited = least.wish == kMeet && least.trainer != kNoRank;
  if (!is_awaited) awaited_ns_ = 0;
  if (is_awaited && awaited_ns_ == 0) awaited_ns_ = MonotonicNanos();
  if (!is_awaited && least.wish <= kMeet) meets_ = false;  // all ranks have met, or no round follows
}

}  // namespace tutti
