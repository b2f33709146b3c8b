// The clock by which this library waits. Nobody can set this clock, unlike the clock of absl::Now(), so that a wait
// lasts as long as its caller asks. A deadline that a caller gives as absl::Time is converted to this clock once, in
// the function that takes the deadline.
#ifndef TUTTI_BASE_CLOCK_H_
#define TUTTI_BASE_CLOCK_H_

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <limits>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace tutti {

inline std::int64_t NanosOnClock(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// Nanoseconds of CLOCK_MONOTONIC: comparable between the processes of a node.
inline std::int64_t MonotonicNanos() { return NanosOnClock(CLOCK_MONOTONIC); }

// The processor time that the calling thread has used. Costs a call of the kernel, unlike MonotonicNanos.
inline std::int64_t ThreadCpuNanos() { return NanosOnClock(CLOCK_THREAD_CPUTIME_ID); }

inline constexpr std::int64_t kNeverNanos = std::numeric_limits<std::int64_t>::max();

// The time `wait` after `start_ns`; kNeverNanos where that is too late for 64 bits, `start_ns` for a negative wait.
inline std::int64_t NanosAfter(std::int64_t start_ns, absl::Duration wait) {
  const std::int64_t wait_ns = std::max<std::int64_t>(0, absl::ToInt64Nanoseconds(wait));
  return wait_ns > kNeverNanos - start_ns ? kNeverNanos : start_ns + wait_ns;
}

inline std::int64_t NanosIn(absl::Duration wait) { return NanosAfter(MonotonicNanos(), wait); }

// The value of MonotonicNanos at `time`, if nobody sets the system's clock until then; now for a time in the past.
inline std::int64_t NanosAt(absl::Time time) { return NanosIn(time - absl::Now()); }

// The time left until `end_ns`; negative after it.
inline absl::Duration LeftUntil(std::int64_t end_ns) {
  return end_ns == kNeverNanos ? absl::InfiniteDuration() : absl::Nanoseconds(end_ns - MonotonicNanos());
}

// `end_ns` for a function that takes an absl::Time. The result is right only now, so make it for each call and never
// keep it: pass a deadline of many calls on as `end_ns`.
inline absl::Time TimeAt(std::int64_t end_ns) { return absl::Now() + LeftUntil(end_ns); }

}  // namespace tutti

#endif  // TUTTI_BASE_CLOCK_H_
