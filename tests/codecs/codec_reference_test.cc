// Codecs written down again as plainly as their pages allow (docs/decisions/0002-uint8-block.md, 0010-codecs.md),
// random numbers included: element by element, in double where that says it best, without a line of src/kernels.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "tests/codecs/inputs.h"
#include "tests/codecs/messages.h"
#include "tutti/codec.h"

namespace tutti {
namespace {

using Floats = std::vector<float>;

// The multiple of the spacing of numbers with `bits` significant bits that is nearest, ties to even; the spacing is no
// smaller than `finest`, and what reaches beyond `largest` is infinite.
float Cast(float value, int bits, double finest, double largest) {
  int exponent = 0;
  std::frexp(value, &exponent);
  const double spacing = std::max(std::ldexp(1.0, exponent - bits), finest);
  const double rounded = std::nearbyint(value / spacing) * spacing;
  if (std::abs(rounded) <= largest) return static_cast<float>(rounded);
  return std::copysign(std::numeric_limits<float>::infinity(), value);
}

std::uint64_t Mixed(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

// 32 random bits: a hash of what names them.
std::uint32_t RandomBits(std::uint64_t seed, std::uint64_t draw, std::uint64_t block, std::uint32_t element) {
  std::uint64_t key = 0;
  for (const std::uint64_t name : {seed, draw, block}) key = Mixed(key + name + 0x9E3779B97F4A7C15u);
  std::uint32_t word = element + static_cast<std::uint32_t>(key);
  word = (word ^ (word >> 16)) * 0x21F0AAADu;
  word ^= static_cast<std::uint32_t>(key >> 32);
  word = (word ^ (word >> 15)) * 0xD35A2D97u;
  return word ^ (word >> 15);
}

double RoundUpTo16Bits(double value) {
  int exponent = 0;
  const double mantissa = std::frexp(value, &exponent);
  return std::ldexp(std::ceil(mantissa * 65536), exponent - 16);
}

// The decoded values of a block on a grid with codes up to `last`. `random[i]` rounds element i; empty: to nearest.
Floats OnGrid(const Floats& block, int last, const std::vector<std::uint32_t>& random) {
  const auto [lowest, highest] = std::minmax_element(block.begin(), block.end());
  const double low = *lowest;
  const double high = *highest;
  const bool spans_zero = low <= 0 && high >= 0;
  const bool stretches = !random.empty() && low < 0 && high > 0;
  const auto step = static_cast<float>(RoundUpTo16Bits((high - low) / (stretches ? last - 1 : last)));
  if (step == 0) return block;
  const float base = spans_zero ? 0 : *lowest;
  const double zero = !spans_zero ? 0 : stretches ? std::ceil(-low / step) : std::floor(-low / step + 0.5);
  const auto min = static_cast<float>(base - zero * step);
  Floats decoded;
  for (std::size_t i = 0; i < block.size(); ++i) {
    const double level = std::clamp<double>((block[i] - base) / step, -zero, last - zero);
    double code = std::nearbyint(level + zero);
    if (!random.empty()) {
      const bool up = (random[i] >> 8) * 0x1p-24 < level - std::floor(level);
      code = std::floor(level) + (up ? 1 : 0) + zero;
    }
    decoded.push_back(static_cast<float>(min + code * step));
  }
  return decoded;
}

// Sums and differences of elements 1, 2, 4 … apart, of each piece whose length is a power of two, the largest first.
// `there`: the factors come before them, ± 2^-⌈log₂ n / 2⌉; back, after them, ± 2^-⌊log₂ n / 2⌋.
Floats Rotated(Floats values, std::uint64_t seed, bool there) {
  const auto factor = [&](std::size_t i, std::size_t length) {
    const int log = static_cast<int>(std::bit_width(length)) - 1;
    const float size = std::ldexp(1.0f, -(there ? log - log / 2 : log / 2));
    return RandomBits(seed, 0, 0, static_cast<std::uint32_t>(i)) >> 31 != 0 ? -size : size;
  };
  for (std::size_t begin = 0, length = 0; begin < values.size(); begin += length) {
    length = std::bit_floor(values.size() - begin);
    const std::size_t end = begin + length;
    for (std::size_t i = begin; there && i < end; ++i) values[i] *= factor(i, length);
    for (std::size_t distance = 1; distance < length; distance *= 2) {
      for (std::size_t i = begin; i < end; ++i) {
        if ((i - begin) & distance) continue;
        const float a = values[i];
        const float b = values[i + distance];
        values[i] = a + b;
        values[i + distance] = a - b;
      }
    }
    for (std::size_t i = begin; !there && i < end; ++i) values[i] *= factor(i, length);
  }
  return values;
}

// The decoded values of a message, block by block.
Floats InBlocks(const Floats& values, const CodecOptions& options, int last, std::uint64_t draw) {
  const auto length = static_cast<std::size_t>(options.block);
  Floats decoded;
  for (std::size_t begin = 0; begin < values.size(); begin += length) {
    const std::size_t end = std::min(begin + length, values.size());
    Floats block(values.begin() + static_cast<std::ptrdiff_t>(begin),
                 values.begin() + static_cast<std::ptrdiff_t>(end));
    std::vector<std::uint32_t> random;
    for (std::uint32_t i = 0; options.rounding == Rounding::kStochastic && i < block.size(); ++i) {
      random.push_back(RandomBits(options.seed, draw, begin / length, i));
    }
    if (options.rotation) block = Rotated(std::move(block), options.seed, /*there=*/true);
    block = OnGrid(block, last, random);
    if (options.rotation) block = Rotated(std::move(block), options.seed, /*there=*/false);
    decoded.insert(decoded.end(), block.begin(), block.end());
  }
  return decoded;
}

// Inputs away from the limits of fp32; the tests of each codec cover those limits.
constexpr Input kPlainInputs[] = {Input::kZeros,    Input::kConstant, Input::kUniform,   Input::kBellShaped,
                                  Input::kPositive, Input::kNegative, Input::kOffset,    Input::kOutlier,
                                  Input::kSparse,   Input::kTiny,     Input::kManyScales};

TEST(CodecReference, CastsRoundToTheNearest) {
  for (const Input input : kAllInputs) {
    const Floats values = MakeValues(input, 1500);
    Floats bf16;
    Floats fp16;
    for (const float value : values) {
      bf16.push_back(Cast(value, 8, 0x1p-133, 0x1.FEp127));
      fp16.push_back(Cast(value, 11, 0x1p-24, 65504));
    }
    EXPECT_EQ(kernels::Differences(RoundTrip(**FindCodec("bf16"), {}, values), bf16), "") << Name(input);
    EXPECT_EQ(kernels::Differences(RoundTrip(**FindCodec("fp16"), {}, values), fp16), "") << Name(input);
  }
}

TEST(CodecReference, BlocksAreRoundedOnTheirGrids) {
  for (const Input input : kPlainInputs) {
    const Floats values = MakeValues(input, 1500);
    for (const Rounding rounding : {Rounding::kNearest, Rounding::kStochastic}) {
      const CodecOptions options = {.block = 64, .rounding = rounding, .seed = 5};
      for (const std::uint64_t draw : {0, 77}) {
        EXPECT_EQ(kernels::Differences(RoundTrip(**FindCodec("uint8_block"), options, values, draw),
                                       InBlocks(values, options, 255, draw)),
                  "")
            << Name(input);
        EXPECT_EQ(kernels::Differences(RoundTrip(**FindCodec("uint4_block"), options, values, draw),
                                       InBlocks(values, options, 15, draw)),
                  "")
            << Name(input);
      }
    }
  }
}

// 1500 elements end with a block of 92 = 64 + 16 + 8 + 4.
TEST(CodecReference, BlocksAreRotatedThereAndBack) {
  for (const Input input : kPlainInputs) {
    const Floats values = MakeValues(input, 1500);
    for (const std::uint64_t seed : {0, 7}) {
      for (const Rounding rounding : {Rounding::kNearest, Rounding::kStochastic}) {
        const CodecOptions options = {.block = 128, .rounding = rounding, .seed = seed, .rotation = true};
        EXPECT_EQ(kernels::Differences(RoundTrip(**FindCodec("uint4_block"), options, values, 3),
                                       InBlocks(values, options, 15, 3)),
                  "")
            << Name(input);
      }
    }
  }
}

}  // namespace
}  // namespace tutti
