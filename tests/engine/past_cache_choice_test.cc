#include "engine/past_cache_choice.h"

#include <gtest/gtest.h>

namespace tutti {
namespace {

using kernels::Stores;

constexpr std::int64_t kBytes = 256 << 10;

// The times of a copy, in ns, on a machine that the test imagines.
struct Machine {
  std::int64_t cached = 0;
  std::int64_t streaming = 0;
};

// Makes `copies` copies on `machine`, and returns how many of them went past the cache.
int Copy(PastCacheChoice& choice, int copies, const Machine& machine) {
  int past = 0;
  for (int i = 0; i < copies; ++i) {
    const Stores stores = choice.Next();
    past += stores == Stores::kStreaming ? 1 : 0;
    choice.Took(kBytes, stores == Stores::kStreaming ? machine.streaming : machine.cached);
  }
  return past;
}

constexpr Machine kHyperthreads = {.cached = 2'600, .streaming = 5'800};
constexpr Machine kOneChip = {.cached = 26'000, .streaming = 9'400};
constexpr Machine kTwoChips = {.cached = 114'000, .streaming = 9'400};

TEST(PastCacheChoiceTest, StaysInTheCacheUnlessThatTakesSeveralTimesAsLong) {
  for (const Machine& machine : {kHyperthreads, kOneChip}) {
    PastCacheChoice choice;
    EXPECT_EQ(Copy(choice, 16, machine), 8);
    EXPECT_LE(Copy(choice, 2560, machine), 10);
  }
}

TEST(PastCacheChoiceTest, GoesPastTheCacheBetweenChips) {
  PastCacheChoice choice;
  EXPECT_EQ(Copy(choice, 16, kTwoChips), 8);
  EXPECT_GE(Copy(choice, 2560, kTwoChips), 2550);
}

// The host of a virtual machine moves its processors.
TEST(PastCacheChoiceTest, FollowsTheMachine) {
  PastCacheChoice choice;
  for (int i = 0; i < 3; ++i) {
    Copy(choice, 2000, kTwoChips);
    EXPECT_GE(Copy(choice, 256, kTwoChips), 255);
    Copy(choice, 2000, kOneChip);
    EXPECT_LE(Copy(choice, 256, kOneChip), 1);
  }
}

TEST(PastCacheChoiceTest, ForgetsACopyInWhichTheRankLostItsProcessor) {
  PastCacheChoice choice;
  Copy(choice, 1000, kOneChip);
  choice.Next();
  choice.Took(kBytes, 10'000'000);
  EXPECT_LE(Copy(choice, 256, kOneChip), 1);
}

TEST(PastCacheChoiceTest, IsNotMisledByFirstTouches) {
  PastCacheChoice choice;
  Copy(choice, 4, {.cached = 300'000, .streaming = 12'000});
  EXPECT_LE(Copy(choice, 12, kOneChip), 6);
  EXPECT_LE(Copy(choice, 256, kOneChip), 1);
}

}  // namespace
}  // namespace tutti
