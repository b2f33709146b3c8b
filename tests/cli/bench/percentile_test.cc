#include "bindings/cli/bench/percentile.h"

#include <cstddef>
#include <numeric>
#include <vector>

#include "gtest/gtest.h"

namespace tutti::cli {
namespace {

// Values 1, 2, … up to `count`.
std::vector<int> UpTo(int count) {
  std::vector<int> values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), 1);
  return values;
}

TEST(PercentileTest, IsTheSmallestValueThatSoManyDoNotExceed) {
  EXPECT_EQ(PercentileOf(UpTo(1), 900), 1);
  EXPECT_EQ(PercentileOf(UpTo(9), 900), 9);
  EXPECT_EQ(PercentileOf(UpTo(10), 900), 9);
  EXPECT_EQ(PercentileOf(UpTo(11), 900), 10);
  EXPECT_EQ(PercentileOf(UpTo(20), 950), 19);
  EXPECT_EQ(PercentileOf(UpTo(100), 990), 99);
  EXPECT_EQ(PercentileOf(UpTo(999), 999), 999);
  EXPECT_EQ(PercentileOf(UpTo(1000), 999), 999);
  EXPECT_EQ(PercentileOf(UpTo(10), 0), 1);
  EXPECT_EQ(PercentileOf(UpTo(10), 1000), 10);
}

}  // namespace
}  // namespace tutti::cli
