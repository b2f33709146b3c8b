// Ranks in threads that wait for each other, and for no rank that has failed.
#ifndef TUTTI_TESTS_HARNESS_RANK_BARRIER_H_
#define TUTTI_TESTS_HARNESS_RANK_BARRIER_H_

#include <barrier>

#include "absl/status/status.h"
#include "base/mutex.h"

namespace tutti {

// A barrier of the ranks of a world (WorldOptions::barrier). A rank leaves the barrier when the rank cannot join, or
// when its body ends, for example by an ASSERT: the others then go on, and do not wait without end.
class RankBarrier {
 public:
  explicit RankBarrier(int ranks) : ranks_(ranks) {}

  // Waits until all ranks that have not left are here.
  void Wait() { ranks_.arrive_and_wait(); }
  void Leave() { ranks_.arrive_and_drop(); }

  // Tells how what this rank has done ended, waits like Wait, and returns whether all ranks have told OK so far.
  bool AllOk(const absl::Status& mine);
  void Tell(const absl::Status& mine);
  // The first error that was told; one of a deadline comes before others, which mostly follow from it.
  absl::Status error() const;

 private:
  std::barrier<> ranks_;
  mutable Mutex mutex_;
  absl::Status error_ TUTTI_GUARDED_BY(mutex_);
};

}  // namespace tutti

#endif  // TUTTI_TESTS_HARNESS_RANK_BARRIER_H_
