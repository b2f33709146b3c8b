#include "tests/harness/stopped_clock.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <ctime>

namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

std::atomic<std::int64_t> stopped_at_ns{0};  // 0: the clock runs

}  // namespace

// Replaces clock_gettime of the C library in the program that this file is linked into, and, because the symbol is
// visible, in the shared libraries of that program.
extern "C" __attribute__((visibility("default"))) int clock_gettime(clockid_t clock, timespec* time) noexcept {
  const std::int64_t stopped_ns = stopped_at_ns;
  if (clock != CLOCK_REALTIME || stopped_ns == 0) return static_cast<int>(syscall(SYS_clock_gettime, clock, time));
  *time = {stopped_ns / kSecond, stopped_ns % kSecond};
  return 0;
}

namespace tutti {

StoppedClock::StoppedClock(absl::Duration ahead) {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  stopped_at_ns = std::int64_t{now.tv_sec} * kSecond + now.tv_nsec + absl::ToInt64Nanoseconds(ahead);
}

StoppedClock::~StoppedClock() { stopped_at_ns = 0; }

}  // namespace tutti
