#include "tests/codecs/golden/sign.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/sign_bits.h"
#include "tests/codecs/inputs.h"
#include "tests/codecs/messages.h"
#include "tutti/codec.h"

namespace tutti {
namespace {

const Codec& Sign() { return **FindCodec("sign"); }

TEST(SignTest, EveryElementBecomesItsSignTimesTheMeanMagnitude) {
  const std::vector<float> values = {1, -2, 3, 4, -5, 6, 7, 8, -9, 10, -11, 12, 13, 14, 15, -16, 0.5f, -1.5f, 2.5f};
  const std::vector<float> decoded = RoundTrip(Sign(), {.block = 16}, values);
  for (std::size_t i = 0; i < 16; ++i) EXPECT_EQ(decoded[i], std::copysign(8.5f, values[i])) << i;
  for (std::size_t i = 16; i < 19; ++i) EXPECT_EQ(decoded[i], std::copysign(1.5f, values[i])) << i;
}

TEST(SignTest, ErrorStaysWithinTheBoundAndTheScaleIsTheMean) {
  for (Input input : kAllInputs) {
    for (std::int64_t count : {60, 1000, 1027}) {
      const std::vector<float> values = MakeValues(input, count);
      const std::vector<float> decoded = RoundTrip(Sign(), {.block = 0}, values);
      double sum = 0, largest = 0;
      for (float value : values) {
        sum += std::abs(static_cast<double>(value));
        largest = std::max(largest, std::abs(static_cast<double>(value)));
      }
      const double mean = sum / static_cast<double>(count);
      for (std::int64_t i = 0; i < count; ++i) {
        const double error = std::abs(static_cast<double>(values[i]) - static_cast<double>(decoded[i]));
        ASSERT_LE(error, largest * (1 + 1e-6)) << Name(input) << i;
        ASSERT_NEAR(std::abs(decoded[i]), mean, mean * 1e-6 + std::numeric_limits<float>::denorm_min()) << Name(input);
        ASSERT_TRUE(values[i] == 0 || decoded[i] == 0 || std::signbit(values[i]) == std::signbit(decoded[i])) << i;
      }
    }
  }
}

// A sign bit cannot encode a zero: zeros become + and - by turns.
TEST(SignTest, ZerosAmongOthersCancelOut) {
  std::vector<float> values(256, 0.0f);
  values[4] = 6;
  values[9] = 2;
  const std::vector<float> decoded = RoundTrip(Sign(), {.block = 256}, values);
  EXPECT_EQ(decoded[4], 8.0f / 256);
  EXPECT_EQ(decoded[0], 8.0f / 256);
  EXPECT_EQ(decoded[1], -8.0f / 256);
  float sum = 0;
  for (std::size_t i = 10; i < 256; ++i) sum += decoded[i];
  EXPECT_EQ(sum, 0);
}

TEST(SignTest, BlocksOfZerosAreExactWithoutASign) {
  const std::vector<float> decoded = RoundTrip(Sign(), {.block = 256}, std::vector<float>(600, -0.0f));
  for (float value : decoded) EXPECT_TRUE(value == 0 && !std::signbit(value));
}

TEST(SignTest, SizesAreEightElementsPerByte) {
  EXPECT_EQ(Sign().encoded_bytes(256, {.block = 256}), 24 + 4 + 32);
  EXPECT_EQ(Sign().encoded_bytes(257, {.block = 256}), 24 + 8 + 32 + 1);
  EXPECT_EQ(Sign().encoded_bytes(1 << 20, {.block = 0}), 24 + 4 + (1 << 17));
  EXPECT_EQ(Sign().encoded_bytes(7, {.block = 0}), 24 + 4 * 7) << "would not shrink";
  EXPECT_FALSE(Sign().validate({.block = 4}).ok());
}

TEST(SignTest, VectorsEqualTheElementFunction) {
  for (Input input : kAllInputs) {
    for (std::int64_t count : {60, 1000, 1027}) {
      const std::vector<float> values = MakeValues(input, count, 4);
      if (input == Input::kZeros) continue;
      const std::vector<std::uint8_t> message = EncodeMessage(Sign(), {.block = 0}, values);
      for (std::int64_t i = 0; i < count; ++i) {
        ASSERT_EQ(message[28 + i / 8] >> (i % 8) & 1, kernels::IsSentNegative(values[i], i)) << Name(input) << i;
      }
    }
  }
}

TEST(SignTest, BytesAreTheGoldenOnes) { CheckGolden(Sign(), kSignGolden); }

}  // namespace
}  // namespace tutti
