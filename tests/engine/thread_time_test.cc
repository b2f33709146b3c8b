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

// Runs `body` in a thread once its times are taken, and looks at the times while that thread still lives.
template <typename Body, typename Look>
void LookAtThread(Body body, Look look) {
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
  while (!done) absl::SleepFor(absl::Milliseconds(1));
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
        EXPECT_GE(absl::ToInt64Nanoseconds(time.waiting()), 2 * kWork);
        EXPECT_GE(absl::ToInt64Nanoseconds(time.cpu() - time.waiting()), 2 * kWork);
        EXPECT_GE(time.wall(), time.cpu());
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
        EXPECT_LT(time.waiting(), absl::Milliseconds(100));
        EXPECT_GE(time.wall(), absl::Milliseconds(200));
      });
}

// A wait under way shows to others what came before its last sleep.
TEST(ThreadTimeTest, AWaitIsSeenWhileTheThreadSleepsInIt) {
  LookAtThread(
      [](ThreadTime& time) {
        time.BeforeSleep();  // in no wait
        time.BeginWait();
        Compute();
        time.BeforeSleep();
        Compute();
      },
      [](const ThreadTime& time) {
        EXPECT_GE(absl::ToInt64Nanoseconds(time.waiting()), kWork);
        EXPECT_GE(absl::ToInt64Nanoseconds(time.cpu() - time.waiting()), kWork);
      });
}

}  // namespace
}  // namespace tutti
