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
    const MutexLock lock(mutex_);
    if (idle_.empty()) return nullptr;
    Call* const call = idle_.back();
    idle_.pop_back();
    Count(-call->held_bytes());
    return call;
  }

  // Takes back a call that nobody uses any more; false: the pool is closed, and the call is nobody's.
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
  }

  // Deletes the idle calls, and so gives back the memory that they hold.
  void DropIdle() {
    std::vector<Call*> dropped;
    {
      const MutexLock lock(mutex_);
      dropped.swap(idle_);
    }
    for (Call* const call : dropped) {
      Count(-call->held_bytes());
      delete call;
    }
  }

 private:
  // Nothing is counted for a small call, which holds nothing.
  void Count(std::int64_t idle_bytes) {
    if (idle_bytes != 0) idle_bytes_->fetch_add(idle_bytes, std::memory_order_relaxed);
  }

  const std::shared_ptr<const Program> program_;
  Channel& channel_;
  const std::shared_ptr<std::atomic<std::int64_t>> idle_bytes_;
  Mutex mutex_;
  bool closed_ TUTTI_GUARDED_BY(mutex_) = false;
  std::vector<Call*> idle_ TUTTI_GUARDED_BY(mutex_);
};

}  // namespace tutti

#endif  // TUTTI_ENGINE_CALL_POOL_H_
