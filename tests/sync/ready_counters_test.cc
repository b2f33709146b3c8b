#include "sync/ready_counters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <thread>

namespace tutti {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(ReadyCounters, LaunchesInIndexOrderWhateverCompletesFirst) {
  ReadyCounters counters({0, 0, 1, 2}, 3);
  std::vector<int> launched;
  auto launch = [&](int bucket) { launched.push_back(bucket); };
  EXPECT_TRUE(counters.Mark(3, launch));
  EXPECT_TRUE(counters.Mark(0, launch));
  EXPECT_THAT(launched, IsEmpty());
  EXPECT_TRUE(counters.Mark(1, launch));
  EXPECT_THAT(launched, ElementsAre(0));
  EXPECT_TRUE(counters.Mark(2, launch));
  EXPECT_THAT(launched, ElementsAre(0, 1, 2));
  EXPECT_EQ(counters.launched(), 3);
}

TEST(ReadyCounters, RefusesASecondMark) {
  ReadyCounters counters({0, 0}, 1);
  auto launch = [](int) { FAIL() << "launched though one gradient is missing"; };
  EXPECT_TRUE(counters.Mark(1, launch));
  EXPECT_FALSE(counters.Mark(1, launch));
  EXPECT_TRUE(counters.marked(1));
  EXPECT_FALSE(counters.marked(0));
}

TEST(ReadyCounters, ManyThreadsLaunchEveryBucketOnceInOrder) {
  constexpr int kThreads = 4;
  constexpr int kBuckets = 64;
  std::vector<int> bucket_of;
  for (int i = 0; i < kThreads * kBuckets; ++i) bucket_of.push_back(i % kBuckets);
  ReadyCounters counters(bucket_of, kBuckets);
  for (int step = 0; step < 20; ++step) {
    counters.Reset();
    std::vector<int> gradients(bucket_of.size(), 0);  // plain memory: a race would be found by TSan
    std::vector<int> launched;
    auto launch = [&](int bucket) {
      launched.push_back(bucket);
      for (std::size_t i = 0; i < bucket_of.size(); ++i) {
        if (bucket_of[i] == bucket) {
          EXPECT_EQ(gradients[i], step + 1);
        }
      }
    };
    std::barrier start(kThreads);
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        start.arrive_and_wait();
        for (int i = t; i < static_cast<int>(bucket_of.size()); i += kThreads) {
          gradients[i] = step + 1;
          EXPECT_TRUE(counters.Mark(i, launch));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(launched.size(), kBuckets);
    for (int b = 0; b < kBuckets; ++b) EXPECT_EQ(launched[b], b);
  }
}

}  // namespace
}  // namespace tutti
