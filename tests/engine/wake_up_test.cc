#include "engine/wake_up.h"

#include <gtest/gtest.h>

namespace tutti {
namespace {

TEST(WakeUpTest, IsMeasuredOnceAndSomethingThatAMachineMayTake) {
  const std::int64_t nanos = WakeUpNanos();
  EXPECT_GT(nanos, 0);
  EXPECT_LT(nanos, 10'000'000'000);
  EXPECT_EQ(WakeUpNanos(), nanos);
}

}  // namespace
}  // namespace tutti
