#include "sync/async_average.h"

#include <cstdint>
#include <utility>

#include "absl/time/clock.h"

namespace tutti {
namespace {

// What a rank says to the next round; all ranks do the least that one of them says.
constexpr std::int32_t kStop = 0;
constexpr std::int32_t kSkip = 1;
constexpr std::int32_t kGo = 2;

// What has travelled; the training thread has not waited for it.
void AddExchanged(const SyncStatistics& from, SyncStatistics& to) {
  to.wire_bytes += from.wire_bytes;
  to.payload_bytes += from.payload_bytes;
  to.communication += from.communication;
}

}  // namespace

AsyncAverage::AsyncAverage(std::unique_ptr<Communicator> communicator, std::unique_ptr<WeightExchange> weights,
                           absl::Duration interval)
    : communicator_(std::move(communicator)), weights_(std::move(weights)), interval_(interval), thread_([this] {
        while (Round()) {
        }
      }) {}

AsyncAverage::~AsyncAverage() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.NotifyAll();
  thread_.join();
}

absl::Status AsyncAverage::Step(SyncStatistics& statistics) {
  Snapshot snapshot;
  {
    MutexLock lock(mutex_);
    if (!error_.ok()) return error_;
    snapshot = snapshot_;
    // What has been averaged counts, even if it was the last time.
    if (paused_ || (ended_ && snapshot != Snapshot::kAveraged)) return absl::OkStatus();
    AddExchanged(std::exchange(statistics_, {}), statistics);
  }
  // While the snapshot is in these two states the background leaves it to this thread.
  if (snapshot == Snapshot::kAveraged) {
    weights_->Correct();
  } else if (snapshot == Snapshot::kNone) {
    weights_->TakeSnapshot();
  } else {
    return absl::OkStatus();
  }
  MutexLock lock(mutex_);
  snapshot_ = snapshot == Snapshot::kNone ? Snapshot::kTaken : Snapshot::kNone;
  return absl::OkStatus();
}

AsyncAverage::Snapshot AsyncAverage::TakeRound() {
  changed_.Wait(mutex_, [this]() TUTTI_REQUIRES(mutex_) { return snapshot_ != Snapshot::kTravels; });
  return std::exchange(snapshot_, Snapshot::kNone);
}

absl::Status AsyncAverage::FinishRound() {
  MutexLock lock(mutex_);
  if (TakeRound() == Snapshot::kAveraged) weights_->Correct();
  return error_;
}

void AsyncAverage::ForgetRound() {
  MutexLock lock(mutex_);
  (void)TakeRound();
}

void AsyncAverage::Pause() {
  MutexLock lock(mutex_);
  paused_ = true;
}

void AsyncAverage::Resume() {
  MutexLock lock(mutex_);
  paused_ = false;
}

std::int32_t AsyncAverage::NextAnswer() {
  MutexLock lock(mutex_);
  changed_.WaitUntil(mutex_, absl::Now() + interval_, [this]() TUTTI_REQUIRES(mutex_) { return stopping_; });
  if (stopping_) return kStop;
  if (paused_ || snapshot_ != Snapshot::kTaken) return kSkip;
  snapshot_ = Snapshot::kTravels;
  return kGo;
}

absl::StatusOr<std::int32_t> AsyncAverage::Agree(std::int32_t answer) {
  std::int32_t least = answer;
  Work agreement = communicator_->AllReduce(&least, &least, 1, DType::kI32, ReduceOp::kMin);
  if (absl::Status status = agreement.Wait(); !status.ok()) return status;
  return least;
}

bool AsyncAverage::Round() {
  const absl::StatusOr<std::int32_t> agreed = Agree(NextAnswer());
  absl::Status status = agreed.status();
  const bool goes = status.ok() && *agreed == kGo;
  SyncStatistics statistics;
  if (goes) {
    weights_->Launch(0, /*step=*/0);
    status = weights_->Finish(statistics);
  }
  MutexLock lock(mutex_);
  AddExchanged(statistics, statistics_);
  if (snapshot_ == Snapshot::kTravels) snapshot_ = goes && status.ok() ? Snapshot::kAveraged : Snapshot::kTaken;
  error_ = status;
  ended_ = !status.ok() || *agreed == kStop;
  changed_.NotifyAll();
  return !ended_;
}

}  // namespace tutti
