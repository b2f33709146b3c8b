// The first error of a channel.
#ifndef TUTTI_ENGINE_STICKY_STATUS_H_
#define TUTTI_ENGINE_STICKY_STATUS_H_

#include <atomic>

#include "absl/status/status.h"
#include "base/mutex.h"

namespace tutti {

// Keeps the first error that it is told; every later call of the channel ends with that error. Thread-safe.
class StickyStatus {
 public:
  bool ok() const { return !failed_.load(std::memory_order_seq_cst); }
  absl::Status Get() const {
    const MutexLock lock(mutex_);
    return status_;
  }
  // True when `error` is the first one.
  bool Set(const absl::Status& error) {
    const MutexLock lock(mutex_);
    if (!status_.ok()) return false;
    status_ = error;
    failed_.store(true, std::memory_order_seq_cst);
    return true;
  }

 private:
  std::atomic<bool> failed_{false};
  mutable Mutex mutex_;
  absl::Status status_ TUTTI_GUARDED_BY(mutex_);
};

}  // namespace tutti

#endif  // TUTTI_ENGINE_STICKY_STATUS_H_
