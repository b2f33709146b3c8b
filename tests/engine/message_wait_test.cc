#include "engine/message_wait.h"

#include <gtest/gtest.h>

namespace tutti {
namespace {

constexpr std::int64_t kWakeUp = 1000;
constexpr std::int64_t kShort = 500;       // far less than it takes to sleep and to wake up
constexpr std::int64_t kLong = 1'000'000;  // far more

// A thread that polls as MessageWait tells it to, at times that the test chooses.
class Waiter {
 public:
  // Waits for a message that comes `after` nanoseconds from now; returns whether the thread sleeps for it. A thread
  // that sleeps runs again kWakeUp after the message has come.
  bool SleepsUntil(std::int64_t after) {
    const std::int64_t comes = now_ + after;
    bool sleeps = false;
    while (now_ < comes && !sleeps) {
      sleeps = !wait_.PollsOn(now_);
      now_ = sleeps ? comes + kWakeUp : now_ + 100;
    }
    wait_.Ended(now_);
    return sleeps;
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
  MessageWait wait_{kWakeUp};
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
  EXPECT_GT(now - began, kWakeUp);
  EXPECT_LT(now - began, 20 * kWakeUp);
  EXPECT_FALSE(waiter.wait().PollsOn(now + 10));  // until the wait ends
}

TEST(MessageWaitTest, AfterLongWaitsAThreadSleepsAtOnce) {
  Waiter waiter;
  EXPECT_EQ(waiter.CountSlept(20, kLong), 20);
  EXPECT_FALSE(waiter.wait().PollsOn(waiter.now()));
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
  EXPECT_GT(waiter.CountSlept(40, kShort), 0);
  EXPECT_EQ(waiter.CountSlept(40, kShort), 0);
}

TEST(MessageWaitTest, WhatComesAtOnceIsNoWait) {
  Waiter waiter;
  waiter.CountSlept(100, kLong);
  for (int i = 0; i < 100; ++i) waiter.Compute(kLong);
  EXPECT_TRUE(waiter.SleepsUntil(kLong));
  EXPECT_FALSE(waiter.wait().PollsOn(waiter.now()));
}

}  // namespace
}  // namespace tutti
