#include "tests/codecs/golden/uint4_block.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/grid.h"
#include "kernels/hadamard.h"
#include "tests/codecs/inputs.h"
#include "tests/codecs/messages.h"
#include "tutti/codec.h"

namespace tutti {
namespace {

const Codec& Uint4Block() { return **FindCodec("uint4_block"); }

double Error(float value, float decoded) { return std::abs(static_cast<double>(value) - static_cast<double>(decoded)); }

// The error bound: half a step (a whole step with stochastic rounding, or where the nearest level is beyond the largest
// fp32), and the rounding of the arithmetic.
double Bound(double min, double max, double decoded, Rounding rounding) {
  constexpr double kSmallest = std::numeric_limits<float>::denorm_min();
  const bool spans_zero = min <= 0 && max >= 0;
  const double steps = rounding == Rounding::kStochastic && spans_zero ? 14 : 15;
  const double step = std::max((max - min) / steps, kSmallest);
  const bool at_the_edge = std::max(-min, max) > static_cast<double>(std::numeric_limits<float>::max()) - step;
  const bool whole = at_the_edge || rounding == Rounding::kStochastic;
  return (whole ? 1.001 : 0.501) * step + (spans_zero ? 0 : std::max(std::abs(decoded) * 0x1p-24, kSmallest / 2));
}

TEST(Uint4BlockTest, ErrorStaysWithinTheBound) {
  for (Input input : kAllInputs) {
    for (std::int64_t count : {13, 100, 128, 1025}) {
      for (std::int64_t block : {0, 4, 128}) {
        for (Rounding rounding : {Rounding::kNearest, Rounding::kStochastic}) {
          const std::vector<float> values = MakeValues(input, count);
          const std::vector<float> decoded = RoundTrip(Uint4Block(), {.block = block, .rounding = rounding}, values);
          const std::int64_t length = block == 0 ? count : block;
          for (std::int64_t begin = 0; begin < count; begin += length) {
            const auto first = values.begin() + begin;
            const auto [min, max] = std::minmax_element(first, first + std::min(length, count - begin));
            for (std::int64_t i = begin; i < std::min(begin + length, count); ++i) {
              ASSERT_LE(Error(values[i], decoded[i]), Bound(*min, *max, decoded[i], rounding))
                  << Name(input) << " count " << count << " block " << block << " [" << i << "]: " << values[i]
                  << " became " << decoded[i];
            }
          }
        }
      }
    }
  }
}

// The rotation preserves lengths except for a factor √2, so the error of the rotated block bounds that of the block.
TEST(Uint4BlockTest, RotatedErrorStaysWithinTheBound) {
  for (Input input : kAllInputs) {
    if (input == Input::kHuge || input == Input::kLargest || input == Input::kSubnormal) continue;  // beyond the bound
    for (std::int64_t count : {128, 512, 999}) {
      for (std::uint64_t seed : {0, 1}) {
        const std::vector<float> values = MakeValues(input, count);
        const std::vector<float> decoded =
            RoundTrip(Uint4Block(), {.block = 128, .seed = seed, .rotation = true}, values);
        const kernels::Rotation rotation(seed, 128);
        for (std::int64_t begin = 0; begin < count; begin += 128) {
          const std::int64_t n = std::min<std::int64_t>(128, count - begin);
          float rotated[128];
          rotation.Apply(absl::MakeConstSpan(values).subspan(begin, n), rotated);
          const auto [min, max] = std::minmax_element(rotated, rotated + n);
          double squares = 0, largest = 0;
          for (std::int64_t i = begin; i < begin + n; ++i) {
            squares += Error(values[i], decoded[i]) * Error(values[i], decoded[i]);
            largest = std::max(largest, std::abs(static_cast<double>(values[i])));
          }
          // Where a length is an odd power of two, the rotation also divides values by √2, and errors grow by √2.
          const double bound = std::sqrt(2.0) * Bound(*min, *max, largest, Rounding::kNearest) + 1e-6 * largest;
          ASSERT_LE(std::sqrt(squares / static_cast<double>(n)), bound) << Name(input) << " block at " << begin;
        }
      }
    }
  }
}

TEST(Uint4BlockTest, RotationSpreadsAnOutlier) {
  std::vector<float> values = MakeValues(Input::kBellShaped, 128);
  values[3] = 1;
  const auto total = [&](const CodecOptions& options) {
    const std::vector<float> decoded = RoundTrip(Uint4Block(), options, values);
    double squares = 0;
    for (std::size_t i = 0; i < values.size(); ++i)
      squares += Error(values[i], decoded[i]) * Error(values[i], decoded[i]);
    return squares;
  };
  EXPECT_LT(total({.block = 128, .rotation = true}), 0.6 * total({.block = 128}));
}

TEST(Uint4BlockTest, SizesAreTwoElementsPerByte) {
  EXPECT_EQ(Uint4Block().encoded_bytes(128, {.block = 128}), 24 + 8 + 64);
  EXPECT_EQ(Uint4Block().encoded_bytes(129, {.block = 128}), 24 + 16 + 64 + 1);
  EXPECT_EQ(Uint4Block().encoded_bytes(129, {.block = 128, .rotation = true}), 24 + 16 + 64 + 1);
  EXPECT_EQ(Uint4Block().encoded_bytes(13, {.block = 0}), 24 + 8 + 7);
  EXPECT_EQ(Uint4Block().encoded_bytes(9, {.block = 0}), 24 + 4 * 9) << "would not shrink";
}

TEST(Uint4BlockTest, VectorsEqualTheElementFunctions) {
  for (Input input : kAllInputs) {
    for (std::int64_t count : {13, 512, 513, 1030}) {
      for (Rounding rounding : {Rounding::kNearest, Rounding::kStochastic}) {
        const CodecOptions options = {.block = 0, .rounding = rounding, .seed = 11};
        const std::vector<float> values = MakeValues(input, count, 9);
        const std::vector<std::uint8_t> message = EncodeMessage(Uint4Block(), options, values, 12);
        const std::vector<float> decoded = RoundTrip(Uint4Block(), options, values, 12);
        const auto [min, max] = std::minmax_element(values.begin(), values.end());
        const kernels::Grid grid = kernels::MakeGrid(*min, *max, 15, rounding);
        const kernels::GridValues levels = kernels::MakeGridValues(grid.min(), grid.step);
        const kernels::RandomStream random = kernels::MakeRandomStream(11, 12, 0);
        for (std::int64_t i = 0; i < count; ++i) {
          const int code = message[32 + i / 2] >> (i % 2 * 4) & 0xF;
          const std::uint32_t word = kernels::RandomWord(random, static_cast<std::uint32_t>(i));
          ASSERT_EQ(code, rounding == Rounding::kNearest ? kernels::EncodeToGrid(grid, values[i])
                                                         : kernels::EncodeToGrid(grid, values[i], word))
              << Name(input) << i;
          ASSERT_EQ(decoded[i], kernels::DecodeFromGrid(levels, static_cast<std::uint8_t>(code))) << Name(input) << i;
        }
      }
    }
  }
}

TEST(Uint4BlockTest, BytesAreTheGoldenOnes) { CheckGolden(Uint4Block(), kUint4BlockGolden); }

}  // namespace
}  // namespace tutti
