// Counters of complete gradients, which find the bucket that is launched next.
#ifndef TUTTI_SYNC_READY_COUNTERS_H_
#define TUTTI_SYNC_READY_COUNTERS_H_

#include <atomic>
#include <utility>
#include <vector>

namespace tutti {

// Buckets are launched in index order, each when all its parameters are marked and all earlier buckets are launched:
// every rank then launches them in one order, whatever order its gradients come in. Mark may be called by any number of
// threads; it neither locks nor allocates. What a thread wrote before Mark is visible to the launch.
class ReadyCounters {
 public:
  // `bucket_of` has one entry per parameter; buckets are 0 … num_buckets - 1, none of them empty.
  ReadyCounters(std::vector<int> bucket_of, int num_buckets);

  // Forgets all marks and launches. No other call may be under way.
  void Reset();

  // Marks parameter `i` and calls launch(bucket) for every bucket that thereby becomes complete and next in order: one
  // thread at a time, not always the one whose Mark completed the bucket. False, without effect, when parameter `i` is
  // marked already.
  template <typename Launch>
  bool Mark(int i, Launch&& launch) {
    if (marked_[i].exchange(true, std::memory_order_relaxed)) return false;
    if (pending_[bucket_of_[i]].fetch_sub(1, std::memory_order_acq_rel) == 1) LaunchFull(std::forward<Launch>(launch));
    return true;
  }

  bool marked(int i) const { return marked_[i].load(std::memory_order_relaxed); }
  // Buckets launched since Reset; exact once every Mark has returned.
  int launched() const { return next_; }

 private:
  template <typename Launch>
  void LaunchFull(Launch&& launch) {
    // The thread that finds nobody launching launches; any other thread leaves a note, and the launching thread looks
    // again.
    if (notes_.fetch_add(1, std::memory_order_acq_rel) != 0) return;
    int seen = 1;
    while (seen != 0) {
      while (next_ < static_cast<int>(pending_.size()) && pending_[next_].load(std::memory_order_acquire) == 0) {
        launch(next_);
        ++next_;
      }
      seen = notes_.fetch_sub(seen, std::memory_order_acq_rel) - seen;
    }
  }

  const std::vector<int> bucket_of_;
  std::vector<int> sizes_;  // parameters per bucket
  std::vector<std::atomic<bool>> marked_;
  std::vector<std::atomic<int>> pending_;  // parameters per bucket that are not marked yet
  std::atomic<int> notes_{0};
  int next_ = 0;  // the next bucket; used by the launching thread only
};

}  // namespace tutti

#endif  // TUTTI_SYNC_READY_COUNTERS_H_
