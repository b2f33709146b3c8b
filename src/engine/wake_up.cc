#include "engine/wake_up.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <thread>

#include "base/clock.h"
#include "base/futex.h"

namespace tutti {
namespace {

// Two threads wake each other in turn; the median of several rounds, of two wake-ups each.
std::int64_t Measure() {
  constexpr std::uint32_t kRounds = 16;
  std::atomic<std::uint32_t> turn = 0;  // even: the first thread's; odd: the second's
  const auto pass = [&turn](std::uint32_t from) {
    turn.store(from + 1, std::memory_order_seq_cst);
    FutexWakeAll(turn);
  };
  const auto await = [&turn](std::uint32_t value) {
    while (turn.load(std::memory_order_seq_cst) != value) FutexWait(turn, value - 1, absl::Milliseconds(1));
  };
  std::thread second([&] {
    for (std::uint32_t i = 0; i < kRounds; ++i) {
      await(2 * i + 1);
      pass(2 * i + 1);
    }
  });
  std::array<std::int64_t, kRounds> rounds_ns;
  for (std::uint32_t i = 0; i < kRounds; ++i) {
    const std::int64_t start_ns = MonotonicNanos();
    pass(2 * i);
    await(2 * i + 2);
    rounds_ns[i] = MonotonicNanos() - start_ns;
  }
  second.join();
  std::nth_element(rounds_ns.begin(), rounds_ns.begin() + kRounds / 2, rounds_ns.end());
  return rounds_ns[kRounds / 2] / 2;
}

}  // namespace

std::int64_t WakeUpNanos() {
  static const std::int64_t nanos = Measure();
  return nanos;
}

}  // namespace tutti
