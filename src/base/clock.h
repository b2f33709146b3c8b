#ifndef TUTTI_BASE_CLOCK_H_
#define TUTTI_BASE_CLOCK_H_

#include <cstdint>
#include <ctime>

namespace tutti {

// Nanoseconds of CLOCK_MONOTONIC: comparable between the processes of a node.
inline std::int64_t MonotonicNanos() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace tutti

#endif  // TUTTI_BASE_CLOCK_H_
