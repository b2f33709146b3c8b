// The driver's seat: one thread at a time drives the engine.
#ifndef TUTTI_ENGINE_DRIVER_SEAT_H_
#define TUTTI_ENGINE_DRIVER_SEAT_H_

#include <atomic>
#include <cstdint>

#include "absl/time/time.h"
#include "base/futex.h"
#include "base/mutex.h"

namespace tutti {

// A mutex (the one of U. Drepper, "Futexes are tricky", section 6), for what std::mutex does not promise: Unlock and
// TryLock are sequentially consistent. Suppose that one thread leaves the seat and then looks for work, while another
// brings work and then tries to take the seat: the first thread sees the work or the second one gets the seat, although
// no call pays for a fence.
class TUTTI_THREAD_ANNOTATION(capability("mutex")) DriverSeat {
 public:
  // A thread that waits looks at the seat at least this often.
  static constexpr absl::Duration kRest = absl::Seconds(10);

  bool TryLock() TUTTI_TRY_ACQUIRE(true) {
    std::uint32_t was = kFree;
    return state_.compare_exchange_strong(was, kTaken);
  }
  void Lock() TUTTI_ACQUIRE() {
    if (TryLock()) return;
    while (state_.exchange(kAwaited) != kFree) FutexWait(state_, kAwaited, kRest);
  }
  void Unlock() TUTTI_RELEASE() {
    if (state_.exchange(kFree) == kAwaited) FutexWakeAll(state_);
  }

 private:
  static constexpr std::uint32_t kFree = 0;
  static constexpr std::uint32_t kTaken = 1;
  static constexpr std::uint32_t kAwaited = 2;  // taken, and threads may sleep until it is free

  std::atomic<std::uint32_t> state_{kFree};
};

}  // namespace tutti

#endif  // TUTTI_ENGINE_DRIVER_SEAT_H_
