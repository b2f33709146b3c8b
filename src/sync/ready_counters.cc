#include "sync/ready_counters.h"

namespace tutti {

ReadyCounters::ReadyCounters(std::vector<int> bucket_of, int num_buckets)
    : bucket_of_(std::move(bucket_of)), sizes_(num_buckets), marked_(bucket_of_.size()), pending_(num_buckets) {
  for (int bucket : bucket_of_) ++sizes_[bucket];
  Reset();
}

void ReadyCounters::Reset() {
  for (std::atomic<bool>& marked : marked_) marked.store(false, std::memory_order_relaxed);
  for (std::size_t b = 0; b < pending_.size(); ++b) pending_[b].store(sizes_[b], std::memory_order_relaxed);
  next_ = 0;
}

}  // namespace tutti
