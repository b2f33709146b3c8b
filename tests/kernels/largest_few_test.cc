#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <vector>

#include "kernels/select_largest.h"
#include "tests/codecs/inputs.h"

namespace tutti::kernels {
namespace {

constexpr std::int64_t kBlock = 65536;

// Expects that `few` has those elements that FindLargest finds.
void ExpectLargest(const std::vector<float>& values, std::int64_t count, const LargestFew& few) {
  Largest largest = FindLargest(values, count);
  ASSERT_TRUE(largest.finite && few.finite);
  std::int64_t k = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint32_t magnitude = MagnitudeOf(values[i]);
    if (magnitude < largest.magnitude || (magnitude == largest.magnitude && largest.ties-- <= 0)) continue;
    ASSERT_EQ(few.indices[k], i) << k;
    ASSERT_EQ(few.values[k], values[i]) << k;
    ++k;
  }
  EXPECT_EQ(k, count);
}

TEST(LargestFewTest, AreTheLargestOfABlock) {
  const auto few = std::make_unique<LargestFew>();
  for (Input input : {Input::kBellShaped, Input::kManyScales}) {
    for (std::int64_t size : {std::int64_t{4096}, kBlock - 1, kBlock, 3 * kBlock + 17}) {
      for (std::int64_t count : {std::int64_t{1}, size / 1000, size / 100}) {
        const std::vector<float> values = MakeValues(input, size);
        ASSERT_TRUE(FindLargestFew(values, count, *few)) << Name(input) << " " << size << " " << count;
        ExpectLargest(values, count, *few);
      }
    }
  }
}

TEST(LargestFewTest, OfEqualMagnitudesTheFirstAreKept) {
  const auto few = std::make_unique<LargestFew>();
  std::vector<float> values = MakeValues(Input::kBellShaped, kBlock);
  for (std::int64_t i = 5; i < kBlock; i += 100) values[i] = i % 200 == 5 ? 2.0f : -2.0f;
  for (std::int64_t count : {1, 15, 600, 655, 656, 700}) {
    ASSERT_TRUE(FindLargestFew(values, count, *few)) << count;
    ExpectLargest(values, count, *few);
  }
}

TEST(LargestFewTest, ValuesThatAreNotFiniteShow) {
  const auto few = std::make_unique<LargestFew>();
  for (float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::quiet_NaN()}) {
    for (std::int64_t position : {0, 1, 70, 65535}) {
      std::vector<float> values = MakeValues(Input::kBellShaped, kBlock);
      values[position] = bad;
      ASSERT_TRUE(FindLargestFew(values, 655, *few));
      EXPECT_FALSE(few->finite) << position;
    }
  }
  EXPECT_FALSE(FindLargestFew(std::vector<float>(kBlock, std::numeric_limits<float>::quiet_NaN()), 655, *few))
      << "do not fit";
}

TEST(LargestFewTest, AreNotFoundWhereCandidatesDoNotFitOrAreTooFew) {
  const auto few = std::make_unique<LargestFew>();
  EXPECT_FALSE(FindLargestFew(std::vector<float>(kBlock, 0.5f), 655, *few)) << "all are equal";
  EXPECT_FALSE(FindLargestFew(MakeValues(Input::kBellShaped, kBlock), kBlock / 2, *few)) << "too many wanted";
  EXPECT_FALSE(FindLargestFew(MakeValues(Input::kBellShaped, 1000), 10, *few)) << "a small block";
  std::vector<float> values(kBlock, 0.001f);
  for (std::int64_t i = 0; i < kBlock; ++i) {
    if (i % 1024 < 16) values[i] = 1;  // the sample has these alone
  }
  EXPECT_FALSE(FindLargestFew(values, 1024 + 1, *few)) << "too few";
}

}  // namespace
}  // namespace tutti::kernels
