#include "tests/codecs/golden/uint8_block.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/grid.h"
#include "tests/codecs/inputs.h"
#include "tests/codecs/messages.h"
#include "tutti/codec.h"

namespace tutti {
namespace {

const Codec& Uint8Block() { return **FindCodec("uint8_block"); }

// The error bound: half a step (a whole step where the nearest level is beyond the largest fp32), and the rounding of
// the arithmetic.
double Bound(double min, double max, double decoded) {
  constexpr double kSmallest = std::numeric_limits<float>::denorm_min();
  const double step = std::max((max - min) / 255, kSmallest);
  const double rounding = std::max(std::abs(decoded) * 0x1p-24, kSmallest / 2);
  const bool at_the_edge = std::max(-min, max) > static_cast<double>(std::numeric_limits<float>::max()) - step;
  const bool spans_zero = min <= 0 && max >= 0;
  return (at_the_edge ? 1.001 : 0.501) * step + (spans_zero ? 0 : rounding);
}

TEST(Uint8BlockTest, ErrorStaysWithinTheBound) {
  for (Input input : kAllInputs) {
    for (std::int64_t count : {1, 2, 11, 100, 1023, 1024, 1025, 4099}) {
      for (std::int64_t block : {0, 4, 64, 1024}) {
        for (std::uint64_t seed : {1, 2, 3}) {
          const std::vector<float> values = MakeValues(input, count, seed);
          const std::vector<float> decoded = RoundTrip(Uint8Block(), {.block = block}, values);
          const std::int64_t length = block == 0 ? count : block;
          for (std::int64_t begin = 0; begin < count; begin += length) {
            const auto first = values.begin() + begin;
            const auto [min, max] = std::minmax_element(first, first + std::min(length, count - begin));
            for (std::int64_t i = begin; i < std::min(begin + length, count); ++i) {
              const double error = std::abs(static_cast<double>(values[i]) - static_cast<double>(decoded[i]));
              ASSERT_LE(error, Bound(*min, *max, decoded[i]))
                  << Name(input) << " count " << count << " block " << block << " seed " << seed << " [" << i
                  << "]: " << values[i] << " became " << decoded[i] << " in " << *min << " … " << *max;
            }
          }
        }
      }
    }
  }
}

TEST(Uint8BlockTest, EqualValuesAreExact) {
  for (float value :
       {0.3f, -7.1e-20f, 1e-45f, 1000.001f, std::numeric_limits<float>::max(), std::numeric_limits<float>::lowest()}) {
    const std::vector<float> values(1500, value);
    EXPECT_EQ(RoundTrip(Uint8Block(), Uint8Block().defaults, values), values) << value;
  }
}

TEST(Uint8BlockTest, FewSubnormalStepsAreExact) {
  std::vector<float> values(600);
  for (int i = 0; i < 600; ++i)
    values[i] = static_cast<float>(i % 200 - 100) * std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(RoundTrip(Uint8Block(), Uint8Block().defaults, values), values);
}

// Values far from zero keep small differences, which Bagua's codec loses.
TEST(Uint8BlockTest, KeepsSmallDifferencesFarFromZero) {
  const std::vector<float> values = MakeValues(Input::kOffset, 1024);
  const std::vector<float> decoded = RoundTrip(Uint8Block(), Uint8Block().defaults, values);
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(decoded[i], values[i], 6.2e-5) << i;  // one fp32 step
}

TEST(Uint8BlockTest, AnOutlierSpoilsItsBlockOnly) {
  const std::vector<float> values = MakeValues(Input::kOutlier, 4096);
  const std::vector<float> decoded = RoundTrip(Uint8Block(), Uint8Block().defaults, values);
  for (std::size_t i = 1024; i < values.size(); ++i) ASSERT_NEAR(decoded[i], values[i], 4e-6) << i;
}

TEST(Uint8BlockTest, SmallMessagesAreRawAndExact) {
  for (std::int64_t count : {0, 1, 5, 10}) {
    std::vector<float> values = MakeValues(Input::kManyScales, count);
    EXPECT_EQ(Uint8Block().encoded_bytes(count, Uint8Block().defaults), 24 + 4 * count);
    EXPECT_EQ(RoundTrip(Uint8Block(), Uint8Block().defaults, values), values);
  }
  EXPECT_EQ(Uint8Block().encoded_bytes(11, Uint8Block().defaults), 24 + 8 + 11);
  EXPECT_EQ(Uint8Block().encoded_bytes(2049, Uint8Block().defaults), 24 + 3 * 8 + 2049);
  EXPECT_EQ(Uint8Block().encoded_bytes(2049, {.block = 0}), 24 + 8 + 2049);
}

TEST(Uint8BlockTest, VectorsEqualTheElementFunctions) {
  for (Input input : kAllInputs) {
    for (std::int64_t count : {11, 16, 17, 127, 1024}) {
      const std::vector<float> values = MakeValues(input, count, 9);
      const std::vector<std::uint8_t> message = EncodeMessage(Uint8Block(), {.block = 0}, values);
      const auto [min, max] = std::minmax_element(values.begin(), values.end());
      const kernels::Grid grid = kernels::MakeGrid(*min, *max, 255, Rounding::kNearest);
      float numbers[2];
      std::memcpy(numbers, &message[24], 8);
      EXPECT_EQ(numbers[0], grid.min());
      EXPECT_EQ(numbers[1], grid.step);
      const std::vector<float> decoded = RoundTrip(Uint8Block(), {.block = 0}, values);
      const kernels::GridValues levels = kernels::MakeGridValues(grid.min(), grid.step);
      for (std::int64_t i = 0; i < count; ++i) {
        ASSERT_EQ(message[32 + i], kernels::EncodeToGrid(grid, values[i])) << Name(input) << i;
        ASSERT_EQ(decoded[i], kernels::DecodeFromGrid(levels, message[32 + i])) << Name(input) << i;
      }
    }
  }
}

// The values of a block whose range is [min, max] that lie halfway between two levels, and some floats beside each.
std::vector<float> ValuesBetweenLevels(float min, float max) {
  const kernels::Grid grid = kernels::MakeGrid(min, max, 255, Rounding::kNearest);
  std::vector<float> values = {min, max};
  for (float level = grid.lowest; level < grid.highest; ++level) {
    float value = static_cast<float>(grid.base + (level + 0.5) * grid.step);
    for (int i = 0; i < 3; ++i) value = std::nextafter(value, -std::numeric_limits<float>::infinity());
    for (int i = 0; i < 7; ++i) {
      values.push_back(std::clamp(value, min, max));
      value = std::nextafter(value, std::numeric_limits<float>::infinity());
    }
  }
  return values;
}

// Vectors multiply where the element functions divide.
TEST(Uint8BlockTest, ValuesBetweenTwoLevelsGoWhereADivisionPutsThem) {
  SplitMix random(1);
  for (int exponent = -149; exponent < 128; ++exponent) {
    for (const double low : {0.0, -0.37, -1.0, 0.25, 0.99}) {
      const auto max = static_cast<float>(std::ldexp(0.75 + 0.25 * random.Symmetric(), exponent));
      const auto min = static_cast<float>(low * max);
      const std::vector<float> values = ValuesBetweenLevels(min, max);
      const std::vector<std::uint8_t> message = EncodeMessage(Uint8Block(), {.block = 0}, values);
      const kernels::Grid grid = kernels::MakeGrid(min, max, 255, Rounding::kNearest);
      for (std::size_t i = 0; i < values.size(); ++i) {
        ASSERT_EQ(message[32 + i], kernels::EncodeToGrid(grid, values[i]))
            << values[i] << " in " << min << " … " << max << ", step " << grid.step;
      }
    }
  }
}

TEST(GridTest, CodeTimesStepIsExact) {
  for (Input input : kAllInputs) {
    const std::vector<float> values = MakeValues(input, 1024, 4);
    const auto [min, max] = std::minmax_element(values.begin(), values.end());
    const kernels::Grid grid = kernels::MakeGrid(*min, *max, 255, Rounding::kNearest);
    const kernels::GridValues levels = kernels::MakeGridValues(grid.min(), grid.step);
    for (int code = 0; code < 256; ++code) {
      ASSERT_EQ(static_cast<double>(static_cast<float>(code) * levels.step), static_cast<double>(levels.step) * code)
          << Name(input) << code;
    }
  }
}

TEST(Uint8BlockTest, BytesAreTheGoldenOnes) { CheckGolden(Uint8Block(), kUint8BlockGolden); }

}  // namespace
}  // namespace tutti
