#include "tests/codecs/golden/minmax_uint8.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/minmax_levels.h"
#include "tests/codecs/inputs.h"
#include "tests/codecs/messages.h"
#include "tutti/codec.h"

namespace tutti {
namespace {

const Codec& MinMaxUint8() { return **FindCodec("minmax_uint8"); }

// Bagua's arithmetic, written down once more from its definition rather than from our code.
struct Reference {
  Reference(float min, float max) {
    scale = static_cast<float>(255.0 / static_cast<double>(max - min + 1e-7f));
    upper = std::rint(max * scale);
    lower = static_cast<float>(static_cast<double>(upper) - 255.0);
  }
  std::uint8_t Encode(float value) const {
    const float level = std::fmin(std::rint(value * scale), upper);
    return static_cast<std::uint8_t>(std::clamp(level - lower, 0.0f, 255.0f));
  }
  float Decode(std::uint8_t code) const { return (code + lower) / scale; }
  float scale, upper, lower;
};

TEST(MinMaxUint8Test, WholeMessageEqualsThePredecessorBitForBit) {
  for (Input input : {Input::kZeros, Input::kConstant, Input::kUniform, Input::kBellShaped, Input::kPositive,
                      Input::kNegative, Input::kOffset, Input::kOutlier, Input::kManyScales, Input::kTiny}) {
    for (std::int64_t count : {11, 100, 1025, 4099}) {
      const std::vector<float> values = MakeValues(input, count, 3);
      const std::vector<std::uint8_t> message = EncodeMessage(MinMaxUint8(), {.block = 0}, values);
      const auto [min, max] = std::minmax_element(values.begin(), values.end());
      const Reference reference(*min, *max);
      float numbers[2];
      std::memcpy(numbers, &message[24], 8);
      EXPECT_EQ(numbers[0], *min);
      EXPECT_EQ(numbers[1], *max);
      const std::vector<float> decoded = RoundTrip(MinMaxUint8(), {.block = 0}, values);
      for (std::int64_t i = 0; i < count; ++i) {
        ASSERT_EQ(message[32 + i], reference.Encode(values[i])) << Name(input) << " [" << i << "]";
        ASSERT_EQ(decoded[i], reference.Decode(message[32 + i])) << Name(input) << " [" << i << "]";
      }
    }
  }
}

TEST(MinMaxUint8Test, VectorsEqualTheElementFunctionsOnEveryInput) {
  for (Input input : kAllInputs) {
    for (std::int64_t count : {16, 127, 1024}) {
      const std::vector<float> values = MakeValues(input, count, 9);
      const std::vector<std::uint8_t> message = EncodeMessage(MinMaxUint8(), {.block = 0}, values);
      const auto [min, max] = std::minmax_element(values.begin(), values.end());
      const kernels::MinMaxLevels levels = kernels::MakeMinMaxLevels(*min, *max);
      for (std::int64_t i = 0; i < count; ++i) {
        ASSERT_EQ(message[32 + i], kernels::EncodeMinMaxUint8(levels, values[i])) << Name(input) << " [" << i << "]";
      }
    }
  }
}

TEST(MinMaxUint8Test, ErrorStaysWithinTheBoundAtModerateOffsets) {
  for (Input input : {Input::kUniform, Input::kBellShaped, Input::kPositive, Input::kNegative, Input::kSparse}) {
    const std::vector<float> values = MakeValues(input, 4099);
    const std::vector<float> decoded = RoundTrip(MinMaxUint8(), {.block = 0}, values);
    const auto [min, max] = std::minmax_element(values.begin(), values.end());
    const double bound = 0.501 * (static_cast<double>(*max - *min) + 1e-7) / 255;
    for (std::size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(decoded[i], values[i], bound) << Name(input);
  }
}

TEST(MinMaxUint8Test, BytesAreTheGoldenOnes) { CheckGolden(MinMaxUint8(), kMinMaxUint8Golden); }

}  // namespace
}  // namespace tutti
