#include "base/clock.h"

#include <gtest/gtest.h>

#include "tests/harness/stopped_clock.h"

namespace tutti {
namespace {

TEST(ClockTest, AWaitIsAddedAndNeverOverflows) {
  EXPECT_EQ(NanosAfter(1000, absl::Nanoseconds(5)), 1005);
  EXPECT_EQ(NanosAfter(1000, absl::Seconds(-5)), 1000);
  EXPECT_EQ(NanosAfter(1000, -absl::InfiniteDuration()), 1000);
  EXPECT_EQ(NanosAfter(1000, absl::InfiniteDuration()), kNeverNanos);
  EXPECT_EQ(NanosAfter(kNeverNanos - 3, absl::Nanoseconds(5)), kNeverNanos);
  EXPECT_EQ(NanosAfter(kNeverNanos, absl::ZeroDuration()), kNeverNanos);
}

TEST(ClockTest, ATimeOfTheSystemsClockIsAsFarAwayAsItIsNow) {
  EXPECT_EQ(NanosAt(absl::InfiniteFuture()), kNeverNanos);
  const std::int64_t before_ns = MonotonicNanos();
  const std::int64_t past_ns = NanosAt(absl::InfinitePast());
  EXPECT_TRUE(before_ns <= past_ns && past_ns <= MonotonicNanos());
  EXPECT_GT(LeftUntil(NanosAt(absl::Now() + absl::Hours(1))), absl::Minutes(50));
  EXPECT_LT(LeftUntil(before_ns), absl::ZeroDuration());
}

TEST(ClockTest, WhatIsLeftIsTheSameByTheSystemsClock) {
  EXPECT_EQ(LeftUntil(kNeverNanos), absl::InfiniteDuration());
  EXPECT_EQ(TimeAt(kNeverNanos), absl::InfiniteFuture());
  const std::int64_t end_ns = NanosIn(absl::Hours(1));
  for (const absl::Duration ahead : {absl::Hours(-2), absl::Hours(2)}) {
    const StoppedClock stopped(ahead);
    const absl::Duration left = TimeAt(end_ns) - absl::Now();
    EXPECT_TRUE(absl::Minutes(50) < left && left <= absl::Hours(1)) << left;
  }
}

}  // namespace
}  // namespace tutti
