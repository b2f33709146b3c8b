#include "engine/callback_threads.h"

#include <atomic>
#include <thread>
#include <vector>

#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tutti {
namespace {

TEST(CallbackThreadsTest, RunsFunctionsInTheirOrderAndOneAfterTheOther) {
  CallbackThreads threads;
  threads.Start();
  std::vector<int> order;  // unguarded on purpose
  for (int i = 0; i < 1000; ++i) threads.Run([&order, i] { order.push_back(i); });
  threads.Stop();
  ASSERT_EQ(order.size(), 1000U);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
}

TEST(CallbackThreadsTest, StopWithoutAThreadReturns) {
  CallbackThreads threads;
  threads.Stop();
}

// Each function waits for the next one, so that each needs a thread of its own.
TEST(CallbackThreadsTest, AFunctionMayWaitForALaterOne) {
  constexpr int kFunctions = 20;
  for (const bool says_so : {false, true}) {
    CallbackThreads threads;
    threads.Start();
    std::vector<absl::Notification> ran(kFunctions + 1);
    for (int i = 0; i < kFunctions; ++i) {
      threads.Run([&ran, i, says_so] {
        if (says_so) CallbackThreads::MayBlock();
        ran[static_cast<std::size_t>(i + 1)].WaitForNotification();
        ran[static_cast<std::size_t>(i)].Notify();
      });
    }
    threads.Run([&ran] { ran[kFunctions].Notify(); });
    ran[0].WaitForNotification();
  }
}

TEST(CallbackThreadsTest, AFunctionThatHasBlockedLongMayWaitForOneThatComesAfterwards) {
  CallbackThreads threads;
  threads.Start();
  absl::Notification begun;
  absl::Notification later;
  threads.Run([&] {
    begun.Notify();
    later.WaitForNotification();
  });
  begun.WaitForNotification();
  threads.Run([&] { later.Notify(); });
  later.WaitForNotification();
}

TEST(CallbackThreadsTest, AFunctionMayQueueAnotherOneAndWaitForIt) {
  CallbackThreads threads;
  threads.Start();
  std::atomic<int> depth = 0;
  std::function<void()> nest = [&] {
    if (++depth == 50) return;
    absl::Notification inner;
    threads.Run([&] {
      nest();
      inner.Notify();
    });
    CallbackThreads::MayBlock();
    inner.WaitForNotification();
  };
  absl::Notification outer;
  threads.Run([&] {
    nest();
    outer.Notify();
  });
  outer.WaitForNotification();
  EXPECT_EQ(depth, 50);
}

TEST(CallbackThreadsTest, StopRunsWhatIsQueuedAlsoBehindAFunctionThatWaitsForIt) {
  CallbackThreads threads;
  threads.Start();
  absl::Notification last;
  bool first_ended = false;
  threads.Run([&] {
    last.WaitForNotification();
    first_ended = true;
  });
  threads.Run([&] { last.Notify(); });
  threads.Stop();
  EXPECT_TRUE(first_ended);
}

TEST(CallbackThreadsTest, AFunctionMayStopAndDestroyItsOwnThreads) {
  for (int i = 0; i < 100; ++i) {
    auto threads = std::make_unique<CallbackThreads>();
    threads->Start();
    CallbackThreads& all = *threads;
    absl::BlockingCounter ran(2);
    absl::Notification queued;
    all.Run([&] {
      queued.WaitForNotification();
      threads.reset();
      ran.DecrementCount();
    });
    all.Run([&] { ran.DecrementCount(); });
    queued.Notify();
    ran.Wait();
  }
}

// Many threads queue functions some of which block for a while.
TEST(CallbackThreadsTest, EveryFunctionRunsOnce) {
  CallbackThreads threads;
  threads.Start();
  std::atomic<int> runs = 0;
  std::vector<std::thread> callers;
  constexpr int kCallers = 4;
  constexpr int kFunctions = 500;
  for (int caller = 0; caller < kCallers; ++caller) {
    callers.emplace_back([&, caller] {
      for (int i = 0; i < kFunctions; ++i) {
        threads.Run([&, i] {
          if (i % 100 == caller) {
            CallbackThreads::MayBlock();
            absl::Notification other;
            threads.Run([&] { other.Notify(); });
            other.WaitForNotification();
          }
          ++runs;
        });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  threads.Stop();
  EXPECT_EQ(runs, kCallers * kFunctions);
}

}  // namespace
}  // namespace tutti
