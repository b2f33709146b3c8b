// Calls that wait to be used again.
#ifndef TUTTI_ENGINE_CALL_POOL_H_
#define TUTTI_ENGINE_CALL_POOL_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "engine/call.h"

namespace tutti {

struct Schedule;

// Calls that nobody will use any more, which the destructor deletes: where no lock is held, because deleting a call of
// a device waits for the device. The driver, for which the device may wait, leaves calls of a device to others.
class UnusedCalls {
 public:
  enum class Owner : std::uint8_t { kCaller, kPerhapsDriver };

  explicit UnusedCalls(Owner owner = Owner::kCaller) : owner_(owner) {}
  ~UnusedCalls() {
    for (Call* const call : calls_) owner_ == Owner::kPerhapsDriver ? call->DeleteFromAnyThread() : delete call;
  }
  UnusedCalls(const UnusedCalls&) = delete;
  UnusedCalls& operator=(const UnusedCalls&) = delete;

  void Add(Call* call) { calls_.push_back(call); }

 private:
  const Owner owner_;
  std::vector<Call*> calls_;
};

// The pools of one cache share a count of the bytes that their idle calls hold, and places of one call each, which are
// taken and filled without a lock. A pool has the place of its spec, in which a call waits that was used lately:
// programs make a few kinds of calls again and again, each of them mostly with one call under way. Thread-safe.
class IdleCalls {
 public:
  // The place of calls of `spec`, in place or not. Calls of other specs may have the same one.
  static std::size_t PlaceOf(const CollectiveSpec& spec) {
    // Fibonacci hashing: 2^64 divided by the golden ratio carries every bit upwards, and the highest ones are taken.
    constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15;
    const std::uint64_t kind = (static_cast<std::uint64_t>(static_cast<std::uint32_t>(spec.root)) << 24) |
                               (static_cast<std::uint64_t>(spec.collective) << 16) |
                               (static_cast<std::uint64_t>(spec.dtype) << 8) | static_cast<std::uint64_t>(spec.op);
    const std::uint64_t mixed = (static_cast<std::uint64_t>(spec.count) * kGolden + kind) * kGolden;
    return mixed >> (64 - kPlaceBits);
  }

  // The bytes that idle calls hold.
  std::int64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
  // Adds to bytes(). Costs nothing for a small call, which holds no bytes.
  void Count(std::int64_t bytes) {
    if (bytes != 0) bytes_.fetch_add(bytes, std::memory_order_relaxed);
  }

  // Takes out the call in a place; nullptr when the place is empty.
  Call* Take(std::size_t place) {
    std::atomic<Call*>& here = places_[place];
    Call* call = here.load(std::memory_order_relaxed);
    while (call != nullptr && call != Closed()) {
      if (here.compare_exchange_weak(call, nullptr, std::memory_order_acq_rel)) {
        Count(-call->held_bytes());
        return call;
      }
    }
    return nullptr;
  }
  // Puts a call that nobody uses any more into a place; false when the place is taken, or Close was called. The call's
  // pool may be gone as soon as the call is in the place.
  bool Keep(std::size_t place, Call* call) {
    std::atomic<Call*>& here = places_[place];
    if (here.load(std::memory_order_relaxed) != nullptr) return false;
    const std::int64_t bytes = call->held_bytes();
    Count(bytes);
    Call* none = nullptr;
    if (here.compare_exchange_strong(none, call, std::memory_order_acq_rel)) return true;
    Count(-bytes);
    return false;
  }
  // Keeps a call, which nobody uses any more, until Close: its memory belongs to a CUDA graph. False after Close: the
  // call is to be deleted.
  bool KeepForGraph(Call* call) {
    const MutexLock lock(mutex_);
    if (!is_closed_) in_graphs_.push_back(call);
    return !is_closed_;
  }
  // Deletes the calls that are kept, and takes no call from now on.
  void Close() {
    std::vector<Call*> in_graphs;
    {
      const MutexLock lock(mutex_);
      is_closed_ = true;
      in_graphs.swap(in_graphs_);
    }
    for (Call* const call : in_graphs) delete call;
    for (std::atomic<Call*>& place : places_) {
      Call* const call = place.exchange(Closed(), std::memory_order_acq_rel);
      if (call == nullptr || call == Closed()) continue;
      Count(-call->held_bytes());
      delete call;
    }
  }

 private:
  // Stands in place of a call after Close.
  static Call* Closed() {
    alignas(Call) static char mark;
    return reinterpret_cast<Call*>(&mark);
  }

  static constexpr int kPlaceBits = 6;

  std::atomic<std::int64_t> bytes_{0};
  std::array<std::atomic<Call*>, std::size_t{1} << kPlaceBits> places_{};
  Mutex mutex_;
  bool is_closed_ TUTTI_GUARDED_BY(mutex_) = false;
  std::vector<Call*> in_graphs_ TUTTI_GUARDED_BY(mutex_);
};

// The lengths of the input and the output that the caller of one call gives.
struct BufferBytes {
  std::int64_t in = 0;
  std::int64_t out = 0;
};

// Calls of one program. Thread-safe. A pool lives as long as any of its calls, idle calls included: therefore the owner
// of the pools closes each of them in the end, and then the IdleCalls.
class CallPool : public std::enable_shared_from_this<CallPool> {
 public:
  // `schedule`: what the callers of the program ask for; nullptr: the selector's choice.
  CallPool(std::shared_ptr<const Program> program, Channel& channel, std::shared_ptr<IdleCalls> idle,
           const Schedule* schedule, BufferBytes buffers)
      : program_(std::move(program)),
        channel_(channel),
        idle_(std::move(idle)),
        place_(IdleCalls::PlaceOf(program_->plan.spec)),
        schedule_(schedule),
        buffers_(buffers) {}

  const CollectiveSpec& spec() const { return program_->plan.spec; }
  const Schedule* schedule() const { return schedule_; }
  bool on_device() const { return program_->stream_order != nullptr; }
  const BufferBytes& buffers() const { return buffers_; }

  // A call with one reference; a new one only when all others are in use.
  Call* Take() {
    UnusedCalls unused;
    Call* call = TakeIdle(unused);
    if (call != nullptr) return call;
    call = Call::Create(program_, channel_);
    call->ReturnTo(shared_from_this());
    return call;
  }

  // An idle call, with one reference; nullptr when none is idle. `unused` gets a call of another pool that is closed.
  Call* TakeIdle(UnusedCalls& unused) {
    Call* const call = TakeFromList();
    if (call != nullptr) return call;
    Call* const placed = idle_->Take(place_);
    if (placed == nullptr || placed->pool() == this) return placed;
    if (!PutBack(placed)) unused.Add(placed);
    return nullptr;
  }

  // Takes back a call that nobody uses any more, of this pool or another one with the same IdleCalls. False where the
  // pool of the call is closed: the call is to be deleted.
  static bool PutBack(Call* call) {
    CallPool& pool = *call->pool();
    if (!pool.closed_.load(std::memory_order_relaxed) && pool.idle_->Keep(pool.place_, call)) return true;
    return PutAway(call);
  }
  // As PutBack, but leaves the call's place in the IdleCalls empty.
  static bool PutAway(Call* call) {
    const std::shared_ptr<CallPool> home =
        call->pool()->shared_from_this();  // the pool may close as soon as it has the call
    return home->Return(call);
  }

  // Whether calls were taken again, without a look at the list of pools, since the last ForgetUse.
  bool was_used() const { return used_.load(std::memory_order_relaxed); }
  void NoteUse() {
    if (!was_used()) used_.store(true, std::memory_order_relaxed);
  }
  void ForgetUse() { used_.store(false, std::memory_order_relaxed); }

  // See IdleCalls::KeepForGraph.
  bool KeepForGraph(Call* call) { return idle_->KeepForGraph(call); }

  // Gives the idle calls to `calls`, and takes no call back from now on.
  void Close(UnusedCalls& calls) {
    {
      const MutexLock lock(mutex_);
      closed_.store(true, std::memory_order_relaxed);
    }
    GiveIdle(calls);
  }

  // Gives the idle calls to `calls`, and so, soon, the memory that they hold back.
  void GiveIdle(UnusedCalls& calls) {
    while (Call* const call = TakeIdle(calls)) calls.Add(call);
  }

 private:
  bool Return(Call* call) {
    const MutexLock lock(mutex_);
    if (closed_.load(std::memory_order_relaxed)) return false;
    idle_->Count(call->held_bytes());
    list_.push_back(call);
    return true;
  }

  Call* TakeFromList() {
    const MutexLock lock(mutex_);
    if (list_.empty()) return nullptr;
    Call* const call = list_.back();
    list_.pop_back();
    idle_->Count(-call->held_bytes());
    return call;
  }

  const std::shared_ptr<const Program> program_;
  Channel& channel_;
  const std::shared_ptr<IdleCalls> idle_;
  const std::size_t place_;  // of the pool's calls in idle_
  const Schedule* const schedule_;
  const BufferBytes buffers_;
  std::atomic<bool> closed_{false};  // written with the mutex held
  std::atomic<bool> used_{false};
  Mutex mutex_;
  std::vector<Call*> list_ TUTTI_GUARDED_BY(mutex_);
};

}  // namespace tutti

#endif  // TUTTI_ENGINE_CALL_POOL_H_
