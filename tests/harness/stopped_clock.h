// A system clock that stands still, as if somebody set it back again and again: a wait that uses this clock never ends.
#ifndef TUTTI_TESTS_HARNESS_STOPPED_CLOCK_H_
#define TUTTI_TESTS_HARNESS_STOPPED_CLOCK_H_

#include "absl/time/time.h"

namespace tutti {

// While a StoppedClock lives, absl::Now() and std::chrono::system_clock stand still in the whole program, `ahead` of
// the time when the StoppedClock was made; clocks that nobody can set go on. A program may have one StoppedClock at a
// time.
class StoppedClock {
 public:
  explicit StoppedClock(absl::Duration ahead = absl::ZeroDuration());
  ~StoppedClock();
  StoppedClock(const StoppedClock&) = delete;
  StoppedClock& operator=(const StoppedClock&) = delete;
};

}  // namespace tutti

#endif  // TUTTI_TESTS_HARNESS_STOPPED_CLOCK_H_
