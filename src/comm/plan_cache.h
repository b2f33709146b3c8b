// Compiled plans of calls that were made before.
#ifndef TUTTI_COMM_PLAN_CACHE_H_
#define TUTTI_COMM_PLAN_CACHE_H_

#include <memory>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "base/mutex.h"
#include "engine/operation_pool.h"
#include "tutti/collective.h"
#include "tutti/schedule.h"

namespace tutti {

struct CallKey {
  CollectiveSpec spec;
  const Schedule* schedule = nullptr;  // nullptr: the selector's choice

  bool operator==(const CallKey&) const = default;

  template <typename H>
  friend H AbslHashValue(H h, const CallKey& key) {
    const CollectiveSpec& s = key.spec;
    return H::combine(std::move(h), s.collective, s.dtype, s.op, s.count, s.root, s.in_place, s.send_counts,
                      s.recv_counts, key.schedule);
  }
};

// Thread-safe. Bounded: when full, everything is forgotten (operations in use stay valid).
class PlanCache {
 public:
  std::shared_ptr<OperationPool> Find(const CallKey& key) {
    const MutexLock lock(mutex_);
    const auto it = pools_.find(key);
    return it == pools_.end() ? nullptr : it->second;
  }

  // Keeps `pool` for `key` unless another thread was faster; returns the one that is kept.
  std::shared_ptr<OperationPool> Insert(const CallKey& key, std::shared_ptr<OperationPool> pool) {
    const MutexLock lock(mutex_);
    if (pools_.size() >= kMostPlans) pools_.clear();
    return pools_.emplace(key, std::move(pool)).first->second;
  }

 private:
  static constexpr std::size_t kMostPlans = 1024;

  Mutex mutex_;
  absl::flat_hash_map<CallKey, std::shared_ptr<OperationPool>> pools_ TUTTI_GUARDED_BY(mutex_);
};

}  // namespace tutti

#endif  // TUTTI_COMM_PLAN_CACHE_H_
