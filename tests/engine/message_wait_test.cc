#include "engine/message_wait.h"

#include <gtest/gtest.h>

namespace tutti {
namespace {

constexpr std::int64_t kShort = 8'000;     // less than a sleep costs
constexpr std::int64_t kLong = 1'000'000;  // more

// A thread that polls as MessageWait tells it to, at times that the test chooses.
class Waiter {
 public:
  // Waits for a message that comes `after` nanoseconds from now; returns whether the thread sleeps for it. A thread
  // that sleeps runs again 20 µs after the message has come.
  bool SleepsUntil(std::int64_t after) {
    const std::int64_t comes = now_ + after;
    bool sleeps = false;
    while (now_ < comes && !sleeps) {
      sleeps = !wait_.PollsOn(now_);
      now_ = sleeps ? comes + 20'000 : now_ + 1000;
    }
    wait_.Ended(now_);
    return sleeps;
  }
  // As SleepsUntil; returns whether the thread polls at first.
  bool TriesFor(std::int64_t after) {
    const bool tries = wait_.PollsOn(now_);
    SleepsUntil(after);
    return tries;
  }
  void Compute(std::int64_t nanos) {
    now_ += nanos;
    wait_.Ended(now_);  // a poll that finds something at once, which is no wait
  }
  // How many waits in a row, `after` each, the thread begins with polls that do not end in sleep.
  int CountSlept(int waits, std::int64_t after) {
    int slept = 0;
    for (int i = 0; i < waits; ++i) slept += SleepsUntil(after) ? 1 : 0;
    return slept;
  }
  MessageWait& wait() { return wait_; }
  std::int64_t now() const { return now_; }

 private:
  MessageWait wait_;
  std::int64_t now_ = 123;
};

TEST(MessageWaitTest, ShortWaitsArePolled) {
  Waiter waiter;
  EXPECT_EQ(waiter.CountSlept(100, kShort), 0);
}

TEST(MessageWaitTest, AThreadPollsForABoundedTime) {
  Waiter waiter;
  const std::int64_t began = waiter.now();
  std::int64_t now = began;
  while (waiter.wait().PollsOn(now)) now += 10;
  EXPECT_EQ(now - began, MessageWait::kPollNanos);
  EXPECT_FALSE(waiter.wait().PollsOn(now + 10));  // until the wait ends
}

TEST(MessageWaitTest, AfterLongWaitsAThreadSleepsAtOnce) {
  Waiter waiter;
  EXPECT_EQ(waiter.CountSlept(20, kLong), 20);
  int tries = 0;
  for (int i = 0; i < 8; ++i) tries += waiter.TriesFor(kLong) ? 1 : 0;
  EXPECT_LE(tries, 1);
}

TEST(MessageWaitTest, TriesInVainBecomeSeldom) {
  Waiter waiter;
  waiter.CountSlept(5000, kLong);
  int tries = 0;
  for (int i = 0; i < 1000; ++i) tries += waiter.TriesFor(kLong) ? 1 : 0;
  EXPECT_LE(tries, 1);
}

TEST(MessageWaitTest, OneLongWaitAmongShortOnesChangesNothing) {
  Waiter waiter;
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(waiter.CountSlept(20, kShort), 0);
    EXPECT_TRUE(waiter.SleepsUntil(kLong));
  }
}

// A thread that sleeps through its waits notices that they have become short.
TEST(MessageWaitTest, AThreadThatSleepsGoesBackToPolls) {
  Waiter waiter;
  waiter.CountSlept(100, kLong);
  EXPECT_GT(waiter.CountSlept(200, kShort), 0);
  EXPECT_EQ(waiter.CountSlept(40, kShort), 0);
}

TEST(MessageWaitTest, WhatComesAtOnceIsNoWait) {
  Waiter waiter;
  waiter.CountSlept(100, kLong);
  for (int i = 0; i < 100; ++i) waiter.Compute(kLong);
  EXPECT_FALSE(waiter.TriesFor(kLong) && waiter.TriesFor(kLong));
}

}  // namespace
}  // namespace tutti
