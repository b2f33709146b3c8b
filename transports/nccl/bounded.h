// Calls of a library that may never return.
#ifndef TUTTI_TRANSPORTS_NCCL_BOUNDED_H_
#define TUTTI_TRANSPORTS_NCCL_BOUNDED_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "base/mutex.h"

namespace tutti::nccl {

// A call on a thread of its own. The thread, and what the called function holds, are left behind while the function
// does not return.
class CallApart {
 public:
  // ResourceExhausted where the system starts no thread; the function is not called then.
  static absl::StatusOr<std::shared_ptr<CallApart>> Start(std::function<void()> function);

  bool has_returned();
  // Waits until the function has returned, at the latest until `end_ns` of MonotonicNanos. False: it has not returned.
  bool ReturnsBy(std::int64_t end_ns);

 private:
  Mutex mutex_;
  Condition changed_;
  bool has_returned_ TUTTI_GUARDED_BY(mutex_) = false;
};

// Whether `function`, called on a thread of its own, has returned by `end_ns`. Errors are those of CallApart::Start.
absl::StatusOr<bool> ReturnsBy(std::int64_t end_ns, std::function<void()> function);

}  // namespace tutti::nccl

#endif  // TUTTI_TRANSPORTS_NCCL_BOUNDED_H_
