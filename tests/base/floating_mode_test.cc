#include "base/floating_mode.h"

#include <gtest/gtest.h>

#include <cfenv>

namespace tutti {
namespace {

// 1 plus less than half of the last place: 1 when rounded to nearest, more when rounded up. The operands are volatile,
// so that the sum is made at run time.
bool RoundsUp() {
  const volatile double one = 1.0, little = 0x1p-60;
  return one + little > 1.0;
}

TEST(DefaultFloatingModeTest, RoundsToNearestAndRestoresTheModeBefore) {
#if !defined(__x86_64__) && !defined(__aarch64__)
  GTEST_SKIP() << "the mode of this processor stays as it is";
#endif
  ASSERT_EQ(std::fesetround(FE_UPWARD), 0);
  const bool before = RoundsUp();
  bool within = true, nested = true, after_nested = true;
  {
    const DefaultFloatingMode mode;
    within = RoundsUp();
    {
      const DefaultFloatingMode again;
      nested = RoundsUp();
    }
    after_nested = RoundsUp();
  }
  const bool after = RoundsUp();
  const int rounding = std::fegetround();
  ASSERT_EQ(std::fesetround(FE_TONEAREST), 0);
  EXPECT_TRUE(before);
  EXPECT_FALSE(within || nested || after_nested);
  EXPECT_TRUE(after);
  EXPECT_EQ(rounding, FE_UPWARD);
}

TEST(DefaultFloatingModeTest, LeavesTheDefaultAlone) {
  {
    const DefaultFloatingMode mode;
    EXPECT_FALSE(RoundsUp());
  }
  EXPECT_FALSE(RoundsUp());
  EXPECT_EQ(std::fegetround(), FE_TONEAREST);
}

}  // namespace
}  // namespace tutti
