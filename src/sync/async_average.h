// Averages the weights of all ranks in the background, while every rank trains at its own pace.
#ifndef TUTTI_SYNC_ASYNC_AVERAGE_H_
#define TUTTI_SYNC_ASYNC_AVERAGE_H_

#include <cstdint>
#include <memory>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/fork.h"
#include "base/mutex.h"
#include "sync/caller.h"
#include "sync/weight_buckets.h"
#include "tutti/communicator.h"
#include "tutti/synchronizer.h"

namespace tutti {

// A round: every rank's training thread takes a snapshot of its weights between two steps; the background threads
// average the snapshots; every training thread, between two later steps, adds average - snapshot to its weights.
//
// The background threads of all ranks meet an interval after the last round and agree (MIN) whether to go on. The first
// answer of each is no: from then on the next step of each training thread takes a snapshot, and the background threads
// meet again when every rank has one, or when one has waited an interval for its own. None may be paused. A snapshot
// that has waited in vain for those of other ranks is taken anew. So the weights that travel are of the last step, or,
// where another rank was late, at most an interval older. When the AsyncAverage of one rank is being destroyed, all
// ranks end their rounds for good and train on by themselves. So no rank waits for the training thread of another, and
// a background thread never touches the weights.
//
// With a bound on staleness an average is applied at most so many steps of this rank after its snapshot. A snapshot
// that has not left after half of these steps is taken anew, so that the other half remains for its journey. A training
// thread waits only for a snapshot that still travels at the bound: for a round that all ranks have agreed on, which
// ends or fails by the timeout of the communicator at the latest.
// In a forked child, where the background thread does not exist, calls do nothing, and return FailedPrecondition where
// they return a status; the destructor must not run there.
class AsyncAverage {
 public:
  // `communicator` is used by nobody else, and `weights` was made with it. `training` is the communicator of the
  // training thread: an error of a round ends it too, on all ranks, before any rank learns of the error and leaves. So
  // no rank that waits in `training` takes such a departure for the cause. `max_staleness` is in steps; 0: no bound.
  AsyncAverage(const Caller& caller, Communicator& training, std::unique_ptr<Communicator> communicator,
               std::unique_ptr<WeightBuckets> weights, absl::Duration interval, std::int64_t max_staleness);
  // Calls Stop.
  ~AsyncAverage();
  AsyncAverage(const AsyncAverage&) = delete;
  AsyncAverage& operator=(const AsyncAverage&) = delete;

  // Called by the training thread after each step: takes a snapshot, or applies an average, when it is time. Waits only
  // for an average that would otherwise be applied later than `max_staleness` allows. Returns the first error of the
  // background thread.
  absl::Status Step(SyncStatistics& statistics);
  // Called by the training thread: FinishRound and ForgetRound wait until the round that is under way has ended.
  // FinishRound applies the round's average, as the other ranks do or have done; ForgetRound drops the average, because
  // the weights were replaced.
  absl::Status FinishRound(SyncStatistics& statistics);
  void ForgetRound();
  // Called by the training thread: waits until the training threads of all ranks are in this call, as long as those
  // that are not make a step within every timeout of the communicator; DeadlineExceeded names one that does not. The
  // next round comes an interval later. Waits for nobody once the rounds have ended.
  absl::Status Meet(SyncStatistics& statistics);

  void Pause();
  // A snapshot of before the pause is dropped, unless its round is under way.
  void Resume();
  // Called by the training thread: ends the rounds of all ranks. Waits until all ranks know: at most for the round that
  // is under way and one interval. Safe to call again.
  void Stop();

  // OK, or the first error of the background thread.
  absl::Status status();

  WeightBuckets& weights() { return *weights_; }

 private:
  // The state of the snapshot, which belongs to the background thread in kTravels, and otherwise to the training
  // thread.
  enum class Snapshot : std::uint8_t { kNone, kTaken, kTravels, kAveraged };

  // The answer of one rank to the others before a round, or the least of the answers of all ranks.
  struct Answer {
    std::int32_t wish;     // kStop, …
    std::int32_t trainer;  // a rank that is not in Meet: its number when it is late, else kSomeRank; else kNoRank
  };

  absl::StatusOr<Answer> Agree(Answer answer, const CallOptions& call);
  // Waits for the snapshot of this rank, an interval at most or until the communicator fails, and returns what this
  // rank wants. After kGo a snapshot exists until the round has ended.
  Answer NextAnswer();
  // Whether others have waited for this rank in Meet for longer than the timeout, and no step has been made meanwhile.
  bool IsLate() const TUTTI_REQUIRES(mutex_);
  // Whether this step takes a snapshot, or takes it anew because half of the bound on staleness is over.
  bool Snaps(bool is_half_stale) const TUTTI_REQUIRES(mutex_);
  // Called when all ranks go on: hands the snapshot, once it is complete, to the background thread.
  void SendSnapshot();
  // Waits until `predicate` holds, which the background thread makes true at the end of a round. An error of the
  // program's watch (SetWaitWatch) ends the round.
  template <typename Predicate>
  void WaitForRound(Predicate predicate) TUTTI_REQUIRES(mutex_);
  // Waits until no round is under way, and resets the snapshot to kNone; returns what the snapshot was.
  Snapshot TakeRound() TUTTI_REQUIRES(mutex_);
  // Runs one round; false when no further round follows.
  bool Round();
  // Called when the ranks have agreed on `least` and what follows from it has ended with `status`.
  void EndRound(const absl::Status& status, const Answer& least) TUTTI_REQUIRES(mutex_);

  const MakerProcess maker_;
  const Caller caller_;
  Communicator& training_;
  const std::unique_ptr<Communicator> communicator_;
  const std::unique_ptr<WeightBuckets> weights_;
  const absl::Duration interval_;
  const std::int64_t max_staleness_;

  std::uint64_t rounds_ = 0;  // agreements begun; used by the background thread only
  std::int64_t age_ = 0;      // steps since the snapshot was taken; used by the training thread only
  Mutex mutex_;
  Condition changed_;
  Snapshot snapshot_ TUTTI_GUARDED_BY(mutex_) = Snapshot::kNone;
  bool wanted_ TUTTI_GUARDED_BY(mutex_) = false;    // the interval is over: the next round waits for snapshots
  bool missed_ TUTTI_GUARDED_BY(mutex_) = false;    // the snapshot has waited in vain for those of other ranks
  bool promised_ TUTTI_GUARDED_BY(mutex_) = false;  // this rank has told the others that it has a snapshot
  bool meets_ TUTTI_GUARDED_BY(mutex_) = false;     // the training thread waits in Meet
  // When the training thread has come to Step last, and when others have begun to wait for it in Meet; 0: they do not.
  std::int64_t stepped_ns_ TUTTI_GUARDED_BY(mutex_) = 0;
  std::int64_t awaited_ns_ TUTTI_GUARDED_BY(mutex_) = 0;
  bool paused_ TUTTI_GUARDED_BY(mutex_) = false;
  bool stopping_ TUTTI_GUARDED_BY(mutex_) = false;
  bool ended_ TUTTI_GUARDED_BY(mutex_) = false;
  absl::Status error_ TUTTI_GUARDED_BY(mutex_);
  SyncStatistics statistics_ TUTTI_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace tutti

#endif  // TUTTI_SYNC_ASYNC_AVERAGE_H_
