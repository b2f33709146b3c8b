#include "engine/driver_seat.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace tutti {
namespace {

// TryLock without clang's analysis of locks, which does not follow its result through an assertion.
bool TryToTake(DriverSeat& seat) TUTTI_NO_THREAD_SAFETY_ANALYSIS { return seat.TryLock(); }
void Leave(DriverSeat& seat) TUTTI_NO_THREAD_SAFETY_ANALYSIS { seat.Unlock(); }

TEST(DriverSeatTest, OneThreadAtATimeHasIt) {
  DriverSeat seat;
  int drives = 0;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < 20'000;) {
        if (thread % 2 == 0) {
          seat.Lock();
        } else if (!seat.TryLock()) {
          std::this_thread::yield();
          continue;
        }
        ++drives;
        ++i;
        seat.Unlock();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(drives, 4 * 20'000);
}

TEST(DriverSeatTest, IsNotGivenTwice) {
  DriverSeat seat;
  ASSERT_TRUE(TryToTake(seat));
  EXPECT_FALSE(TryToTake(seat));
  Leave(seat);
  ASSERT_TRUE(TryToTake(seat));
  Leave(seat);
}

TEST(DriverSeatTest, WhoSleepsForItIsWoken) {
  DriverSeat seat;
  seat.Lock();
  std::atomic<int> served = 0;
  std::atomic<int> come = 0;
  std::vector<std::thread> sleepers;
  for (int i = 0; i < 3; ++i) {
    sleepers.emplace_back([&] {
      ++come;
      seat.Lock();
      ++served;
      seat.Unlock();
    });
  }
  while (come.load() < 3) std::this_thread::yield();
  for (int turn = 0; turn < 1000; ++turn) std::this_thread::yield();  // the sleepers have time to fall asleep
  EXPECT_EQ(served, 0);
  const absl::Time left = absl::Now();
  seat.Unlock();
  for (std::thread& sleeper : sleepers) sleeper.join();
  EXPECT_EQ(served, 3);
  EXPECT_LT(absl::Now() - left, DriverSeat::kRest / 2) << "they looked again by themselves";
}

// One thread leaves the seat and then looks for work, another brings work and then tries to take the seat: the first
// sees the work, or the second gets the seat.
TEST(DriverSeatTest, NoWorkIsLeftBetweenTwoThreads) {
  for (int round = 0; round < 20'000; ++round) {
    DriverSeat seat;
    std::atomic<bool> work = false;
    std::atomic<int> ready = 0;
    bool bringer_drives = false;
    ASSERT_TRUE(TryToTake(seat));
    std::thread bringer([&] {
      ++ready;
      while (ready.load() < 2) std::this_thread::yield();
      work.store(true);
      bringer_drives = TryToTake(seat);
    });
    ++ready;
    while (ready.load() < 2) std::this_thread::yield();
    Leave(seat);
    const bool leaver_saw = work.load();
    bringer.join();
    ASSERT_TRUE(leaver_saw || bringer_drives) << "in round " << round;
    if (bringer_drives) Leave(seat);
  }
}

}  // namespace
}  // namespace tutti
