// Compiled plans of calls that were made before.
#ifndef TUTTI_COMM_PLAN_CACHE_H_
#define TUTTI_COMM_PLAN_CACHE_H_

#include <cstdint>
#include <iterator>
#include <list>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "base/mutex.h"
#include "engine/call_pool.h"
#include "engine/channel.h"
#include "tutti/collective.h"
#include "tutti/schedule.h"

namespace tutti {

struct CallKey {
  CollectiveSpec spec;
  const Schedule* schedule = nullptr;  // nullptr: the selector's choice
  bool on_device = false;              // the buffers are memory of a GPU

  bool operator==(const CallKey&) const = default;

  template <typename H>
  friend H AbslHashValue(H h, const CallKey& key) {
    const CollectiveSpec& s = key.spec;
    return H::combine(std::move(h), s.collective, s.dtype, s.op, s.count, s.root, s.in_place, s.send_counts,
                      s.recv_counts, key.schedule, key.on_device);
  }
};

inline BufferBytes BuffersOf(const CollectiveSpec& spec, Rank rank, int size) {
  return {InputCount(spec, rank, size) * SizeOf(spec.dtype), OutputCount(spec, rank, size) * SizeOf(spec.dtype)};
}

// Thread-safe. Bounded in the bytes of the plans, and in the bytes of the arena that their idle calls hold (staging and
// scratch): the plan or call that was used least recently goes first, where all calls that were taken without a lock
// since plans or calls went last count as used at the same time. Calls in use stay valid.
class PlanCache {
 public:
  // Keeps plans of up to `most_plan_bytes` (see BytesOf) and idle calls of up to `most_idle_bytes`, and the plan used
  // last whatever it holds.
  PlanCache(std::int64_t most_plan_bytes, std::int64_t most_idle_bytes)
      : most_plan_bytes_(most_plan_bytes), most_idle_bytes_(most_idle_bytes) {}
  ~PlanCache() {
    UnusedCalls unused;
    for (const Entry& entry : pools_) entry.pool->Close(unused);
    idle_->Close();
  }

  // A call of `key` that waits to be used again; nullptr: no such call waits.
  Call* TakeIdle(const CallKey& key) {
    UnusedCalls unused;
    const MutexLock lock(mutex_);
    if (!MoveToFront(key)) return nullptr;
    return TakeIdleOfFront(unused);
  }

  // Takes the idle call that waits in the place of `spec` (see IdleCalls), or else an idle call of the plan used last,
  // if the call serves: its plan's spec differs from `spec` at most in in_place, it was made for `schedule` and for the
  // same memory, and `fits(its pool, the call in the place, or null)` holds. Otherwise nullptr. A spec that has a plan
  // is valid, so the spec of a call that is made again and again need not be validated. A call is taken out of its
  // place without a lock, unless idle calls hold too much memory.
  template <typename Fits>
  Call* TakeIdleAgain(const CollectiveSpec& spec, const Schedule* schedule, bool on_device, const Fits& fits) {
    const auto serves = [&](const CallPool& pool, const Call* placed) {
      return pool.schedule() == schedule && pool.on_device() == on_device && DifferAtMostInPlace(pool.spec(), spec) &&
             fits(pool, placed);
    };
    UnusedCalls unused;
    if (Call* const placed = idle_->Take(IdleCalls::PlaceOf(spec)); placed != nullptr) {
      if (serves(*placed->pool(), placed)) {
        placed->pool()->NoteUse();
        if (idle_->bytes() > most_idle_bytes_) {
          const MutexLock lock(mutex_);
          MoveUsedBefore(pools_.begin());
          Trim(unused);
        }
        return placed;
      }
      // The place is for the call that is made now: a call that stayed in it would keep all others out.
      if (!CallPool::PutAway(placed)) unused.Add(placed);
    }
    const MutexLock lock(mutex_);
    if (pools_.empty() || !serves(*pools_.front().pool, nullptr)) return nullptr;
    return TakeIdleOfFront(unused);
  }

  std::shared_ptr<CallPool> Find(const CallKey& key) {
    const MutexLock lock(mutex_);
    return MoveToFront(key) ? pools_.front().pool : nullptr;
  }

  // Keeps a new pool for `key` unless another thread was faster; returns the pool that is kept.
  std::shared_ptr<CallPool> Insert(const CallKey& key, std::shared_ptr<const Program> program, Channel& channel) {
    UnusedCalls unused;
    const MutexLock lock(mutex_);
    if (const auto it = places_.find(key); it != places_.end()) return it->second->pool;
    const std::int64_t bytes = BytesOf(*program);
    plan_bytes_ += bytes;
    if (plan_bytes_ > most_plan_bytes_) MoveUsedBefore(pools_.begin());
    while (plan_bytes_ > most_plan_bytes_ && !pools_.empty()) {
      plan_bytes_ -= pools_.back().bytes;
      places_.erase(pools_.back().key);
      pools_.back().pool->Close(unused);
      pools_.pop_back();
    }
    const BufferBytes buffers = BuffersOf(key.spec, channel.rank(), channel.size());
    pools_.push_front(
        {key, std::make_shared<CallPool>(std::move(program), channel, idle_, key.schedule, buffers), bytes});
    places_.emplace(key, pools_.begin());
    TrimBehindFront(unused);
    return pools_.front().pool;
  }

  // Gives back all memory of the host that idle calls hold. Also for the driver, which waits for no device.
  void DropIdle() {
    UnusedCalls unused(UnusedCalls::Owner::kPerhapsDriver);
    const MutexLock lock(mutex_);
    for (const Entry& entry : pools_) {
      if (!entry.pool->on_device()) entry.pool->GiveIdle(unused);
    }
  }

 private:
  struct Entry {
    CallKey key;
    std::shared_ptr<CallPool> pool;
    std::int64_t bytes = 0;  // the bytes that the plan takes
  };

  static bool DifferAtMostInPlace(const CollectiveSpec& a, const CollectiveSpec& b) {
    return a.collective == b.collective && a.dtype == b.dtype && a.op == b.op && a.count == b.count &&
           a.root == b.root && a.send_counts == b.send_counts && a.recv_counts == b.recv_counts;
  }

  Call* TakeIdleOfFront(UnusedCalls& unused) TUTTI_REQUIRES(mutex_) {
    TrimBehindFront(unused);
    return pools_.front().pool->TakeIdle(unused);
  }

  // False when there is no plan for `key`.
  bool MoveToFront(const CallKey& key) TUTTI_REQUIRES(mutex_) {
    const auto it = places_.find(key);
    if (it == places_.end()) return false;
    pools_.splice(pools_.begin(), pools_, it->second);
    return true;
  }

  // Moves the pools behind `place` whose calls were taken out of their places lately to before `place`. Such calls
  // leave their pools where these are in the list; so this happens before the last pools of the list lose what they
  // have.
  void MoveUsedBefore(std::list<Entry>::iterator place) TUTTI_REQUIRES(mutex_) {
    for (auto it = place; it != pools_.end();) {
      const auto here = it++;
      if (!here->pool->was_used()) continue;
      here->pool->ForgetUse();
      pools_.splice(place, pools_, here);
    }
  }

  // Trims where idle calls hold too much memory. The first pool stays the first one: it is the one of the call that is
  // made now.
  void TrimBehindFront(UnusedCalls& unused) TUTTI_REQUIRES(mutex_) {
    if (idle_->bytes() <= most_idle_bytes_) return;
    MoveUsedBefore(std::next(pools_.begin()));
    Trim(unused);
  }

  // Gives back idle calls, from the last pool on, but none of the first pool, until they hold no more than they may.
  void Trim(UnusedCalls& unused) TUTTI_REQUIRES(mutex_) {
    for (auto it = pools_.rbegin(); it != std::prev(pools_.rend()); ++it) {
      if (idle_->bytes() <= most_idle_bytes_) return;
      it->pool->GiveIdle(unused);
    }
  }

  const std::int64_t most_plan_bytes_;
  const std::int64_t most_idle_bytes_;
  const std::shared_ptr<IdleCalls> idle_ = std::make_shared<IdleCalls>();
  Mutex mutex_;
  std::int64_t plan_bytes_ TUTTI_GUARDED_BY(mutex_) = 0;
  std::list<Entry> pools_ TUTTI_GUARDED_BY(mutex_);  // the pool used last comes first
  absl::flat_hash_map<CallKey, std::list<Entry>::iterator> places_ TUTTI_GUARDED_BY(mutex_);
};

}  // namespace tutti

#endif  // TUTTI_COMM_PLAN_CACHE_H_
