#include "engine/message_wait.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

namespace tutti {
namespace {

constexpr std::int64_t kShort = 8'000;      // less than a sleep costs
constexpr std::int64_t kLong = 5'000'000;   // more, by so much that no alarm is worth it
constexpr std::int64_t kKnown = 1'000'000;  // long, but short enough for an alarm
constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

// A thread that polls as MessageWait tells it to, at times that the test chooses.
class Waiter {
 public:
  // Waits for a message that comes `after` nanoseconds from now; returns whether the thread sleeps until it comes. A
  // thread that sleeps runs again 20 µs after the message has come, or after its alarm.
  bool SleepsUntil(std::int64_t after, const void* kind = nullptr) {
    const std::int64_t comes = now_ + after;
    bool sleeps = false;
    while (now_ < comes) {
      sleeps = !wait_.PollsOn(now_, kind);
      if (sleeps) {
        now_ = std::min(comes, wait_.alarm_ns(now_)) + 20'000;
      } else {
        now_ += 1000;
        polled_ += 1000;
      }
    }
    wait_.Ended(now_);
    return sleeps;
  }
  // As SleepsUntil; returns whether the thread polls at first.
  bool TriesFor(std::int64_t after) {
    const bool tries = PollsOn(now_);
    SleepsUntil(after);
    return tries;
  }
  bool PollsOn(std::int64_t now) { return wait_.PollsOn(now, nullptr); }
  void Compute(std::int64_t nanos) {
    now_ += nanos;
    wait_.Ended(now_);  // a poll that finds something at once, which is no wait
  }
  // The number of waits, of `waits` in a row that last `after` each, in which the thread was asleep when the message
  // came.
  int CountSlept(int waits, std::int64_t after) {
    int slept = 0;
    for (int i = 0; i < waits; ++i) slept += SleepsUntil(after) ? 1 : 0;
    return slept;
  }
  MessageWait& wait() { return wait_; }
  std::int64_t now() const { return now_; }
  std::int64_t polled() const { return polled_; }  // nanoseconds in all

 private:
  MessageWait wait_;
  std::int64_t now_ = 123;
  std::int64_t polled_ = 0;
};

TEST(MessageWaitTest, ShortWaitsArePolled) {
  Waiter waiter;
  EXPECT_EQ(waiter.CountSlept(100, kShort), 0);
}

TEST(MessageWaitTest, AThreadPollsForABoundedTime) {
  Waiter waiter;
  const std::int64_t began = waiter.now();
  std::int64_t now = began;
  while (waiter.PollsOn(now)) now += 10;
  EXPECT_EQ(now - began, MessageWait::kPollNanos);
  EXPECT_FALSE(waiter.PollsOn(now + 10));  // until the wait ends
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
  EXPECT_GT(tries, 0);
  EXPECT_LE(tries, 1000 / 32);
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

TEST(MessageWaitTest, AThreadPollsWhenAMessageOfAKnownWayIsDue) {
  Waiter waiter;
  waiter.CountSlept(40, kKnown);
  const std::int64_t before = waiter.polled();
  EXPECT_LE(waiter.CountSlept(100, kKnown), 2);  // these waits try polls at once
  EXPECT_LE((waiter.polled() - before) / 100, MessageWait::kAlarmBeforeNanos);
}

TEST(MessageWaitTest, AnAlarmEndsWithItsWait) {
  Waiter waiter;
  waiter.CountSlept(40, kKnown);
  const std::int64_t began = waiter.now();
  MessageWait& wait = waiter.wait();
  EXPECT_FALSE(waiter.PollsOn(began));
  const std::int64_t alarm = wait.alarm_ns(began);
  EXPECT_GE(alarm, began + kKnown - MessageWait::kAlarmBeforeNanos);
  EXPECT_LE(alarm, began + kKnown);
  EXPECT_EQ(wait.alarm_ns(alarm), alarm);  // at once
  EXPECT_EQ(wait.alarm_ns(alarm + MessageWait::kPollNanos), kNever);
  wait.Ended(began + kKnown / 2);
  EXPECT_EQ(wait.alarm_ns(began + kKnown / 2), kNever);
}

TEST(MessageWaitTest, AThreadThatHasPolledInVainSleepsUntilTheMessageComes) {
  Waiter waiter;
  waiter.CountSlept(40, kKnown);
  const std::int64_t before = waiter.polled();
  EXPECT_TRUE(waiter.SleepsUntil(20 * kKnown));
  EXPECT_GT(waiter.polled(), before);
  EXPECT_LE(waiter.polled() - before, MessageWait::kPollNanos);
}

// Waits of eight lengths in turn, 0.5 to 3.3 ms: one message of eight comes while the thread would poll for it.
TEST(MessageWaitTest, AlarmsInVainBecomeSeldom) {
  Waiter waiter;
  const auto wait = [&](int i) { return waiter.SleepsUntil(kKnown / 2 + i % 8 * 2 * MessageWait::kPollNanos); };
  for (int i = 0; i < 20; ++i) wait(i);  // in which polls at once become seldom
  const std::int64_t at_first = waiter.polled();
  for (int i = 0; i < 4000; ++i) wait(i);
  const std::int64_t before = waiter.polled();
  EXPECT_GT(before - at_first, 5 * MessageWait::kPollNanos);  // alarms are tried
  for (int i = 0; i < 800; ++i) wait(i);
  EXPECT_LE((waiter.polled() - before) / 800, MessageWait::kPollNanos / 10);
}

// Waits of a known length for one call, and short ones for another, in turn.
TEST(MessageWaitTest, WaitsForOneCallSayNothingOfWaitsForAnother) {
  constexpr char kBarrier = 0;
  constexpr char kExchange = 0;
  Waiter waiter;
  const auto wait = [&] {
    const int slept = waiter.SleepsUntil(kKnown, &kBarrier) ? 1 : 0;
    return slept + (waiter.SleepsUntil(kShort, &kExchange) ? 1 : 0);
  };
  for (int i = 0; i < 100; ++i) wait();
  const std::int64_t before = waiter.polled();
  int slept = 0;
  for (int i = 0; i < 100; ++i) slept += wait();
  EXPECT_LE(slept, 2);  // these waits try polls at once
  EXPECT_LE((waiter.polled() - before) / 100, MessageWait::kAlarmBeforeNanos + 2 * kShort);
}

// A call that is made once knows what the calls before it have met.
TEST(MessageWaitTest, ANewCallGoesByTheWaitsForAllCalls) {
  const std::vector<char> calls(10'000);
  Waiter waiter;
  for (const char& call : calls) waiter.SleepsUntil(kLong, &call);
  EXPECT_LE(waiter.polled(), static_cast<std::int64_t>(calls.size()) / 32 * MessageWait::kPollNanos);
  int slept = 0;
  for (const char& call : calls) slept += waiter.SleepsUntil(kShort, &call) ? 1 : 0;
  EXPECT_LE(slept, 1000);
}

TEST(MessageWaitTest, ManyCallsInTurnGoByTheWaitsForAllCalls) {
  const std::vector<char> calls(1000);
  Waiter waiter;
  for (int round = 0; round < 20; ++round) {
    for (const char& call : calls) waiter.SleepsUntil(kLong, &call);
  }
  EXPECT_LE(waiter.polled(), 20'000 / 32 * MessageWait::kPollNanos);
}

// Another thread drives on, for another call.
TEST(MessageWaitTest, AWaitIsOneWhoeverDrives) {
  constexpr char kFirst = 0;
  constexpr char kSecond = 0;
  MessageWait wait;
  EXPECT_TRUE(wait.PollsOn(0, &kFirst));
  EXPECT_TRUE(wait.PollsOn(MessageWait::kPollNanos - 1, &kSecond));
  EXPECT_FALSE(wait.PollsOn(MessageWait::kPollNanos, &kSecond));
  EXPECT_FALSE(wait.PollsOn(MessageWait::kPollNanos + 1, &kFirst));
}

TEST(MessageWaitTest, NoAlarmIsSetWhereAWakeUpIsLittle) {
  Waiter waiter;
  waiter.CountSlept(2000, kLong);
  const std::int64_t before = waiter.polled();
  EXPECT_EQ(waiter.CountSlept(200, kLong), 200);
  EXPECT_LE(waiter.polled() - before, 200 / 32 * MessageWait::kPollNanos);  // of waits that try polls at once
}

}  // namespace
}  // namespace tutti
