#include "engine/callback_threads.h"

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tutti {
namespace {

// Happens once. ThreadSanitizer does not understand that of Abseil, which is built without it.
class Event {
 public:
  void Notify() {
    happened_ = true;
    happened_.notify_all();
  }
  void Wait() const { happened_.wait(false); }

 private:
  std::atomic<bool> happened_ = false;
};

// A function that loses its processor for a millisecond counts as blocked, and the later ones run beside it, so the
// order is that of the calls only where one thread has run all.
TEST(CallbackThreadsTest, RunsFunctionsInTheirOrderAndOneAfterTheOther) {
  constexpr int kFunctions = 100;
  constexpr int kTries = 100;
  for (int tries = 0; tries < kTries; ++tries) {
    CallbackThreads threads;
    ASSERT_TRUE(threads.Start());
    std::mutex mutex;
    std::vector<int> order;
    std::set<std::thread::id> ran_on;
    for (int i = 0; i < kFunctions; ++i) {
      threads.Run([&, i] {
        const std::lock_guard lock(mutex);
        order.push_back(i);
        ran_on.insert(std::this_thread::get_id());
      });
    }
    threads.Stop();
    ASSERT_EQ(order.size(), static_cast<std::size_t>(kFunctions));
    if (ran_on.size() > 1) continue;
    for (int i = 0; i < kFunctions; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
    return;
  }
  FAIL() << "functions ran on several threads " << kTries << " times";
}

TEST(CallbackThreadsTest, StopWithoutAThreadReturns) {
  CallbackThreads threads;
  threads.Stop();
}

// Each function waits for the next one, so that each needs a thread of its own.
TEST(CallbackThreadsTest, AFunctionMayWaitForALaterOne) {
  constexpr int kFunctions = 20;
  for (const bool says_so : {false, true}) {
    std::vector<Event> ran(kFunctions + 1);
    CallbackThreads threads;
    ASSERT_TRUE(threads.Start());
    for (int i = 0; i < kFunctions; ++i) {
      threads.Run([&ran, i, says_so] {
        if (says_so) CallbackThreads::MayBlock();
        ran[static_cast<std::size_t>(i + 1)].Wait();
        ran[static_cast<std::size_t>(i)].Notify();
      });
    }
    threads.Run([&ran] { ran[kFunctions].Notify(); });
    ran[0].Wait();
  }
}

TEST(CallbackThreadsTest, AFunctionThatHasBlockedLongMayWaitForOneThatComesAfterwards) {
  Event begun;
  Event later;
  CallbackThreads threads;
  ASSERT_TRUE(threads.Start());
  threads.Run([&] {
    begun.Notify();
    later.Wait();
  });
  begun.Wait();
  threads.Run([&] { later.Notify(); });
  later.Wait();
}

TEST(CallbackThreadsTest, AFunctionMayQueueAnotherOneAndWaitForIt) {
  std::atomic<int> depth = 0;
  Event outer;
  CallbackThreads threads;
  ASSERT_TRUE(threads.Start());
  std::function<void()> nest = [&] {
    if (++depth == 50) return;
    const auto inner = std::make_shared<Event>();
    threads.Run([&nest, inner] {
      nest();
      inner->Notify();
    });
    CallbackThreads::MayBlock();
    inner->Wait();
  };
  threads.Run([&] {
    nest();
    outer.Notify();
  });
  outer.Wait();
  EXPECT_EQ(depth, 50);
}

TEST(CallbackThreadsTest, StopRunsWhatIsQueuedAlsoBehindAFunctionThatWaitsForIt) {
  Event last;
  CallbackThreads threads;
  ASSERT_TRUE(threads.Start());
  bool first_ended = false;
  threads.Run([&] {
    last.Wait();
    first_ended = true;
  });
  threads.Run([&] { last.Notify(); });
  threads.Stop();
  EXPECT_TRUE(first_ended);
}

// The other threads have ended for want of functions.
TEST(CallbackThreadsTest, AFunctionMayQueueAnotherOneAndWaitForItWhileTheThreadsEnd) {
  for (const bool says_so : {false, true}) {
    Event begun;
    CallbackThreads threads;
    ASSERT_TRUE(threads.Start());
    threads.Run([&] {
      if (says_so) CallbackThreads::MayBlock();
      begun.Notify();
      absl::SleepFor(absl::Milliseconds(50));
      const auto other = std::make_shared<Event>();
      threads.Run([other] { other->Notify(); });
      other->Wait();
    });
    begun.Wait();
    threads.Stop();
  }
}

TEST(CallbackThreadsTest, AFunctionMayStopAndDestroyItsOwnThreads) {
  for (int i = 0; i < 100; ++i) {
    Event queued;
    Event first;
    Event second;
    auto threads = std::make_unique<CallbackThreads>();
    ASSERT_TRUE(threads->Start());
    CallbackThreads& all = *threads;
    all.Run([&] {
      queued.Wait();
      threads.reset();
      first.Notify();
    });
    all.Run([&] { second.Notify(); });
    queued.Notify();
    first.Wait();
    second.Wait();
  }
}

TEST(CallbackThreadsTest, AFunctionThatComesAfterTheEndRunsAtOnce) {
  CallbackThreads threads;
  ASSERT_TRUE(threads.Start());
  threads.Stop();
  EXPECT_TRUE(threads.Start());  // there is nothing to start any more
  std::thread::id ran_on;
  threads.Run([&] { ran_on = std::this_thread::get_id(); });
  EXPECT_EQ(ran_on, std::this_thread::get_id());
}

// Many threads queue functions some of which block for a while.
TEST(CallbackThreadsTest, EveryFunctionRunsOnce) {
  CallbackThreads threads;
  ASSERT_TRUE(threads.Start());
  std::atomic<int> runs = 0;
  std::vector<std::thread> callers;
  constexpr int kCallers = 4;
  constexpr int kFunctions = 500;
  for (int caller = 0; caller < kCallers; ++caller) {
    callers.emplace_back([&, caller] {
      for (int i = 0; i < kFunctions; ++i) {
        threads.Run([&, i, caller] {
          if (i % 100 == caller) {
            CallbackThreads::MayBlock();
            const auto other = std::make_shared<Event>();
            threads.Run([other] { other->Notify(); });
            other->Wait();
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
