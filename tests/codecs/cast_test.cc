// The codecs bf16 and fp16.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/float16.h"
#include "kernels/reduce.h"
#include "kernels/stochastic_cast.h"
#include "tests/codecs/golden/bf16.h"
#include "tests/codecs/golden/fp16.h"
#include "tests/codecs/inputs.h"
#include "tests/codecs/messages.h"
#include "tutti/codec.h"

namespace tutti {
namespace {

constexpr CodecOptions kStochastic = {.rounding = Rounding::kStochastic};

const Codec& Bf16() { return **FindCodec("bf16"); }
const Codec& Fp16() { return **FindCodec("fp16"); }

TEST(CastTest, MessagesAreTheElementsOfTheLinearType) {
  for (const Codec* codec : {&Bf16(), &Fp16()}) {
    const std::vector<float> values = MakeValues(Input::kManyScales, 2051);
    std::vector<std::uint8_t> converted(2 * values.size());
    kernels::Convert(*codec->linear, converted.data(), DType::kF32, values.data(), 2051, kernels::Stores::kCached);
    EXPECT_EQ(MessageDifferences(*codec, {}, 2051, EncodeMessage(*codec, {}, values), converted), "") << codec->name;
  }
}

TEST(CastTest, ErrorStaysWithinTheBound) {
  for (Input input : kAllInputs) {
    const std::vector<float> values = MakeValues(input, 2000);
    for (const CodecOptions& options : {CodecOptions{}, kStochastic}) {
      const double factor = options.rounding == Rounding::kNearest ? 1 : 2;
      const std::vector<float> bf16 = RoundTrip(Bf16(), options, values);
      const std::vector<float> fp16 = RoundTrip(Fp16(), options, values);
      for (std::size_t i = 0; i < values.size(); ++i) {
        const double x = values[i];
        if (std::abs(x) < 0x1.FEp127) {
          ASSERT_LE(std::abs(bf16[i] - x), factor * std::max(std::abs(x) * 0x1p-8, 0x1p-134)) << Name(input) << i;
        }
        if (std::abs(x) < 65504) {
          ASSERT_LE(std::abs(fp16[i] - x), factor * std::max(std::abs(x) * 0x1p-11, 0x1p-25)) << Name(input) << i;
        }
      }
    }
  }
}

TEST(CastTest, WhatIsTooLargeForHalfPrecisionShowsAsInfinity) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> values = {65504, 65519, 65520, -65520, 1e38f, -1e38f, 65536};
  EXPECT_EQ(RoundTrip(Fp16(), {}, values),
            (std::vector<float>{65504, 65504, kInfinity, -kInfinity, kInfinity, -kInfinity, kInfinity}));
  const std::vector<float> random = RoundTrip(Fp16(), kStochastic, {65504, 65536, -1e38f, 3e38f});
  EXPECT_EQ(random, (std::vector<float>{65504, kInfinity, -kInfinity, kInfinity}));
}

TEST(CastTest, StochasticRoundingKeepsWhatTheTypeHas) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    for (std::uint32_t word : {0u, 0x80000000u, 0xFFFFFFFFu}) {
      if (const float value = kernels::FloatFromBFloat16(half); value == value) {
        ASSERT_EQ(kernels::BFloat16AtRandom(value, word), half);
      }
      if (const float value = kernels::FloatFromFloat16(half); value == value) {
        ASSERT_EQ(kernels::Float16AtRandom(value, word), half);
      }
    }
  }
}

TEST(CastTest, VectorsEqualTheElementFunctions) {
  const kernels::RandomStream random = kernels::MakeRandomStream(3, 4, 0);
  for (Input input : kAllInputs) {
    std::vector<float> values = MakeValues(input, 1501);
    values[7] = std::numeric_limits<float>::quiet_NaN();
    values[8] = -std::numeric_limits<float>::infinity();
    const CodecOptions options = {.rounding = Rounding::kStochastic, .seed = 3};
    const std::vector<std::uint8_t> bf16 = EncodeMessage(Bf16(), options, values, 4);
    const std::vector<std::uint8_t> fp16 = EncodeMessage(Fp16(), options, values, 4);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::uint32_t word = kernels::RandomWord(random, static_cast<std::uint32_t>(i));
      std::uint16_t element;
      std::memcpy(&element, &bf16[2 * i], 2);
      ASSERT_EQ(element, kernels::BFloat16AtRandom(values[i], word)) << Name(input) << i;
      std::memcpy(&element, &fp16[2 * i], 2);
      ASSERT_EQ(element, kernels::Float16AtRandom(values[i], word)) << Name(input) << i;
    }
  }
}

TEST(CastTest, BytesAreTheGoldenOnes) {
  CheckGolden(Bf16(), kBf16Golden);
  CheckGolden(Fp16(), kFp16Golden);
}

}  // namespace
}  // namespace tutti
