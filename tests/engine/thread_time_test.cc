#include "engine/thread_time.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <thread>

#include "absl/time/clock.h"

namespace tutti {
namespace {

constexpr std::int64_t kWork = 5'000'000;  // nanoseconds of processor time

void Compute() {
  for (const std::int64_t end_ns = ThreadCpuNanos() + kWork; ThreadCpuNanos() < end_ns;) {
  }
}

void Rest(const ThreadTime& /*time*/) { absl::SleepFor(absl::Milliseconds(1)); }

// Runs `body` in a thread once its times are taken, does `meanwhile` again and again, and looks at the times when
// `body` has ended and that thread still lives.
template <typename Body, typename Look, typename Meanwhile = void (*)(const ThreadTime&)>
void LookAtThread(Body body, Look look, Meanwhile meanwhile = Rest) {
  ThreadTime time;
  std::latch started(1);
  std::atomic<bool> done{false};
  std::atomic<bool> seen{false};
  std::thread thread([&] {
    started.wait();
    body(time);
    done = true;
    while (!seen) absl::SleepFor(absl::Milliseconds(1));
  });
  time.Start(thread.native_handle());
  started.count_down();
  while (!done) meanwhile(time);
  look(time);
  seen = true;
  thread.join();
}

TEST(ThreadTimeTest, OnlyProcessorTimeWithinWaitsIsWaiting) {
  LookAtThread(
      [](ThreadTime& time) {
        Compute();
        time.EndWait();  // none has begun
        time.BeginWait();
        Compute();
        time.BeginWait();  // the same wait
        Compute();
        time.EndWait();
        Compute();
      },
      [](const ThreadTime& time) {
        const ThreadTime::Processor processor = time.processor();
        EXPECT_GE(absl::ToInt64Nanoseconds(processor.waiting), 2 * kWork);
        EXPECT_GE(absl::ToInt64Nanoseconds(processor.used - processor.waiting), 2 * kWork);
        EXPECT_GE(time.wall(), processor.used);
      });
}

TEST(ThreadTimeTest, SleepTakesNoProcessorTime) {
  LookAtThread(
      [](ThreadTime& time) {
        time.BeginWait();
        absl::SleepFor(absl::Milliseconds(200));
        time.EndWait();
      },
      [](const ThreadTime& time) {
        EXPECT_LT(time.processor().waiting, absl::Milliseconds(100));
        EXPECT_GE(time.wall(), absl::Milliseconds(200));
      });
}

TEST(ThreadTimeTest, AWaitUnderWayIsSeenUpToNow) {
  LookAtThread(
      [](ThreadTime& time) {
        Compute();
        time.BeginWait();
        Compute();
      },
      [](const ThreadTime& time) {
        const ThreadTime::Processor processor = time.processor();
        EXPECT_GE(absl::ToInt64Nanoseconds(processor.waiting), kWork);
        EXPECT_GE(absl::ToInt64Nanoseconds(processor.used - processor.waiting), kWork);
      });
}

// Whatever the thread does between two looks of another, the waits between them took no more than the processor time
// between them.
TEST(ThreadTimeTest, NoMoreIsWaitedThanUsedBetweenTwoLooks) {
  constexpr int kWaits = 20'000;
  ThreadTime::Processor last;
  int too_much = 0;
  const auto compare = [&](const ThreadTime& time) {
    const ThreadTime::Processor now = time.processor();
    if (now.waiting - last.waiting > now.used - last.used || now.waiting < last.waiting) ++too_much;
    last = now;
  };
  LookAtThread(
      [](ThreadTime& time) {
        for (int i = 0; i < kWaits; ++i) {
          time.BeginWait();
          if (i % 64 == 0) absl::SleepFor(absl::Microseconds(1));
          time.EndWait();
        }
      },
      compare, compare);
  EXPECT_EQ(too_much, 0);
}

}  // namespace
}  // namespace tutti
