// Calls of one program that wait to be used again.
#ifndef TUTTI_ENGINE_CALL_POOL_H_
#define TUTTI_ENGINE_CALL_POOL_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "engine/call.h"

namespace tutti {

// Thread-safe. A pool lives as long as any of its calls, also of the idle ones: whoever has made a pool closes it in
// the end.
class CallPool : public std::enable_shared_from_this<CallPool> {
 public:
  // `idle_bytes` counts what idle calls hold, those of other pools too.
  CallPool(std::shared_ptr<const Program> program, Channel& channel,
           std::shared_ptr<std::atomic<std::int64_t>> idle_bytes)
      : program_(std::move(program)), channel_(channel), idle_bytes_(std::move(idle_bytes)) {}

  // A call with one reference; a new one only when all others are in use.
  Call* Take() {
    Call* call = TakeIdle();
    if (call != nullptr) return call;
    call = Call::Create(program_, channel_);
    call->ReturnTo(shared_from_this());
    return call;
  }

  // A call that waited to be used again, with one reference; nullptr: none does.
  Call* TakeIdle() {
    Call* call = TakeSpare();
    if (call == nullptr) call = TakeFromList();
    if (call != nullptr) Count(-call->held_bytes());
    return call;
  }

  // Takes back a call that nobody uses any more, without a lock; false: there is a spare call already, or the pool is
  // closed. The pool may be gone as soon as it has the call, whose reference kept the pool.
  bool ReturnAsSpare(Call* call) {
    if (spare_.load(std::memory_order_relaxed) != nullptr) return false;
    const std::int64_t bytes = call->held_bytes();
    Count(bytes);
    Call* none = nullptr;
    if (spare_.compare_exchange_strong(none, call, std::memory_order_acq_rel)) return true;
    Count(-bytes);
    return false;
  }

  // Takes back a call that nobody uses any more; false: the pool is closed, and the call is nobody's. The caller keeps
  // the pool meanwhile.
  bool Return(Call* call) {
    const MutexLock lock(mutex_);
    if (closed_) return false;
    Count(call->held_bytes());
    idle_.push_back(call);
    return true;
  }

  // Deletes the idle calls, and takes no call back from now on.
  void Close() {
    {
      const MutexLock lock(mutex_);
      closed_ = true;
    }
    DropIdle();
    Call* const spare = spare_.exchange(Closed(), std::memory_order_acq_rel);
    if (spare != nullptr && spare != Closed()) Drop(spare);
  }

  // Deletes the idle calls, and so gives back the memory that they hold.
  void DropIdle() {
    while (Call* const call = TakeSpare()) Drop(call);
    while (Call* const call = TakeFromList()) Drop(call);
  }

 private:
  // Stands in place of the spare call of a closed pool.
  static Call* Closed() {
    alignas(Call) static char mark;
    return reinterpret_cast<Call*>(&mark);
  }

  Call* TakeSpare() {
    Call* call = spare_.load(std::memory_order_relaxed);
    while (call != nullptr && call != Closed()) {
      if (spare_.compare_exchange_weak(call, nullptr, std::memory_order_acq_rel)) return call;
    }
    return nullptr;
  }

  Call* TakeFromList() {
    const MutexLock lock(mutex_);
    if (idle_.empty()) return nullptr;
    Call* const call = idle_.back();
    idle_.pop_back();
    return call;
  }

  void Drop(Call* call) {
    Count(-call->held_bytes());
    delete call;
  }

  // Nothing is counted for a small call, which holds nothing.
  void Count(std::int64_t idle_bytes) {
    if (idle_bytes != 0) idle_bytes_->fetch_add(idle_bytes, std::memory_order_relaxed);
  }

  const std::shared_ptr<const Program> program_;
  Channel& channel_;
  const std::shared_ptr<std::atomic<std::int64_t>> idle_bytes_;
  // One of the idle calls: where calls are made one after the other, the only one.
  std::atomic<Call*> spare_{nullptr};
  Mutex mutex_;
  bool closed_ TUTTI_GUARDED_BY(mutex_) = false;
  std::vector<Call*> idle_ TUTTI_GUARDED_BY(mutex_);
};

}  // namespace tutti

#endif  // TUTTI_ENGINE_CALL_POOL_H_
