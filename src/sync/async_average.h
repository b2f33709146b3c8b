// Averages the weights of all ranks in the background, while every rank trains at its own pace.
#ifndef TUTTI_SYNC_ASYNC_AVERAGE_H_
#define TUTTI_SYNC_ASYNC_AVERAGE_H_

#include <cstdint>
#include <memory>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "sync/weight_exchange.h"
#include "tutti/communicator.h"
#include "tutti/synchronizer.h"

namespace tutti {

// A round: every rank's training thread takes a snapshot of its weights between two steps; the background threads
// average the snapshots; every training thread, between two later steps, adds average - snapshot to its weights.
//
// The background threads of all ranks meet an interval after the last round and agree (MIN) whether to go on: all must
// have a snapshot, none be paused; when one is being destroyed, all stop for good and train on by themselves. So no
// rank waits for the training thread of another, and a background thread never touches the weights.
//
// With a bound on staleness an average is applied at most so many steps of this rank after its snapshot. A snapshot
// that has not left is taken anew after half of them, so that the other half is left to travel in; what still travels
// at the bound is waited for, and that is the only wait of a training thread: for a round that all ranks have agreed
// on, which ends, or fails, by the timeout of the communicator at the latest.
class AsyncAverage {
 public:
  // `communicator` is used by nobody else, and `weights` was made with it. `max_staleness`: in steps; 0: no bound.
  AsyncAverage(std::unique_ptr<Communicator> communicator, std::unique_ptr<WeightExchange> weights,
               absl::Duration interval, std::int64_t max_staleness);
  // Stops.
  ~AsyncAverage();
  AsyncAverage(const AsyncAverage&) = delete;
  AsyncAverage& operator=(const AsyncAverage&) = delete;

  // Of the training thread, after each step: takes a snapshot or applies an average when it is time. Waits only for an
  // average that would otherwise be applied later than `max_staleness` allows. The first error of the background, if
  // there was one.
  absl::Status Step(SyncStatistics& statistics);
  // Of the training thread: waits for a round that is under way, which then is no more. Finish applies what it found,
  // as the other ranks do or have done; Forget does not, because the weights have become others.
  absl::Status FinishRound(SyncStatistics& statistics);
  void ForgetRound();

  void Pause();
  void Resume();
  // Of the training thread: tells the other ranks, whose rounds end too, and waits for them: for a round that is under
  // way and for one interval at most. Safe to call again.
  void Stop();

  WeightExchange& weights() { return *weights_; }

 private:
  // kTravels: the background's, until it is averaged. Otherwise the training thread's.
  enum class Snapshot : std::uint8_t { kNone, kTaken, kTravels, kAveraged };

  absl::StatusOr<std::int32_t> Agree(std::int32_t answer);
  // Waits for the next round and says what this rank wants; if to go on, there is a snapshot until the round has ended.
  std::int32_t NextAnswer();
  // All go on: the snapshot, when it is whole, is the background's from then on.
  void SendSnapshot();
  // Waits until no round is under way, and leaves none.
  Snapshot TakeRound() TUTTI_REQUIRES(mutex_);
  // One round; false when it was the last.
  bool Round();

  const std::unique_ptr<Communicator> communicator_;
  const std::unique_ptr<WeightExchange> weights_;
  const absl::Duration interval_;
  const std::int64_t max_staleness_;

  std::int64_t age_ = 0;  // of the snapshot, in steps; the training thread's
  Mutex mutex_;
  Condition changed_;
  Snapshot snapshot_ TUTTI_GUARDED_BY(mutex_) = Snapshot::kNone;
  bool promised_ TUTTI_GUARDED_BY(mutex_) = false;  // the other ranks were told that this one has a snapshot
  bool paused_ TUTTI_GUARDED_BY(mutex_) = false;
  bool stopping_ TUTTI_GUARDED_BY(mutex_) = false;
  bool ended_ TUTTI_GUARDED_BY(mutex_) = false;
  absl::Status error_ TUTTI_GUARDED_BY(mutex_);
  SyncStatistics statistics_ TUTTI_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace tutti

#endif  // TUTTI_SYNC_ASYNC_AVERAGE_H_
