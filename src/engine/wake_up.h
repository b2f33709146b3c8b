// How long this machine takes to wake a sleeping thread.
#ifndef TUTTI_ENGINE_WAKE_UP_H_
#define TUTTI_ENGINE_WAKE_UP_H_

#include <cstdint>

namespace tutti {

// The nanoseconds from the call that wakes a sleeping thread until the thread runs, in the median: measured at the first
// call in this process, which takes about a millisecond.
std::int64_t WakeUpNanos();

}  // namespace tutti

#endif  // TUTTI_ENGINE_WAKE_UP_H_
