// The quotient of grid.h that needs no division is the quotient.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>

#include "kernels/grid.h"

namespace tutti::kernels {
namespace {

constexpr int kGrids = 20000;

// A grid of 256 levels whose step has 16 significant bits and is at least `smallest`, at most `largest`.
Grid RandomGrid(std::mt19937& random, float smallest, float largest, Rounding rounding) {
  std::uniform_real_distribution<float> exponent(std::log2(smallest), std::log2(largest));
  std::uniform_real_distribution<float> part(0, 1);
  const float range = 250.0f * std::exp2(exponent(random));
  const float min = -part(random) * range;
  return MakeGrid(min, min + range, 255, rounding);
}

// Values that lie between two levels, as near to the middle as floats do, and anywhere.
template <class Visit>
void VisitValues(const Grid& grid, std::mt19937& random, const Visit& visit) {
  std::uniform_int_distribution<int> level(static_cast<int>(grid.lowest), static_cast<int>(grid.highest) - 1);
  std::uniform_real_distribution<float> part(0, 1);
  float value = static_cast<float>(level(random) + 0.5) * grid.step;
  for (int i = 0; i < 8; ++i) value = std::nextafter(value, -INFINITY);
  for (int i = 0; i < 16; ++i) {
    visit(value);
    value = std::nextafter(value, INFINITY);
  }
  visit(static_cast<float>(level(random)) * grid.step);
  for (int i = 0; i < 16; ++i) visit((static_cast<float>(level(random)) + part(random)) * grid.step);
}

TEST(QuickLevelsTest, AreTheQuotients) {
  std::mt19937 random(7);
  for (int i = 0; i < kGrids; ++i) {
    const Grid grid = RandomGrid(random, 0x1p-99f, 0x1p99f, Rounding::kNearest);
    const QuickLevels quick(grid);
    ASSERT_TRUE(quick.serves()) << grid.step;
    VisitValues(grid, random, [&](float value) {
      ASSERT_EQ(quick.Of(grid, value), LevelOf(grid, value)) << value << " in steps of " << grid.step;
    });
  }
}

TEST(QuickLevelsTest, GiveTheCodesOfTinyValues) {
  std::mt19937 random(8);
  std::uniform_real_distribution<float> exponent(-149, -90);
  for (int i = 0; i < kGrids; ++i) {
    const Grid nearest = RandomGrid(random, 0x1p-99f, 0x1p99f, Rounding::kNearest);
    const Grid stochastic = RandomGrid(random, 0x1p-59f, 0.25f, Rounding::kStochastic);
    ASSERT_TRUE(QuickLevels(stochastic).serves_at_random());
    for (const float sign : {-1.0f, 1.0f}) {
      const float value = sign * std::exp2(exponent(random));
      ASSERT_EQ(CodeOf(nearest, QuickLevels(nearest).Of(nearest, value)), EncodeToGrid(nearest, value)) << value;
      for (const std::uint32_t word : {0u, 0x100u, 0xFFFFFFFFu}) {
        ASSERT_EQ(CodeAtRandom(stochastic, QuickLevels(stochastic).Of(stochastic, value), word),
                  EncodeToGrid(stochastic, value, word))
            << value << " in steps of " << stochastic.step;
      }
    }
  }
}

TEST(QuickLevelsTest, ServeNoStepThatIsTooSmallOrTooLarge) {
  for (const float range : {0.0f, 0x1p-120f, 0x1p120f}) {
    const Grid grid = MakeGrid(0, range, 255, Rounding::kNearest);
    EXPECT_FALSE(QuickLevels(grid).serves());
    EXPECT_FALSE(QuickLevels(grid).serves_at_random());
  }
}

}  // namespace
}  // namespace tutti::kernels
