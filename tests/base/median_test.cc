#include "base/median.h"

#include "gtest/gtest.h"

namespace tutti {
namespace {

TEST(MedianTest, IsTheMiddleOrTheMeanOfTheTwoInTheMiddle) {
  EXPECT_EQ(MedianOf({3}), 3);
  EXPECT_EQ(MedianOf({9, 1, 2}), 2);
  EXPECT_EQ(MedianOf({3, 1}), 2);
  EXPECT_EQ(MedianOf({4, 100, 2, 1}), 3);
}

}  // namespace
}  // namespace tutti
