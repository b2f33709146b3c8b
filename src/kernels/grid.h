// The arithmetic of the codecs uint8_block and uint4_block, one element at a time; their SIMD loops and the kernels of
// GPUs give equal bits. docs/decisions/0002-uint8-block.md derives the arithmetic.
#ifndef TUTTI_KERNELS_GRID_H_
#define TUTTI_KERNELS_GRID_H_

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/host_device.h"
#include "tutti/codec.h"
#include "tutti/codecs/random.h"

namespace tutti::kernels {

// Equally spaced levels over the range of a block. A level k stands for base + k·step, and is sent as the code k + zero
// (0 … last). When zero lies in the range, base is 0, so that zero is a level.
struct Grid {
  float base;
  float step;    // has at most 16 significant bits, so that code · step is exact; 0 when all values are equal
  float zero;    // code of level 0, an integer
  float lowest;  // lowest and highest: the levels in use, whose codes lie within 0 … last and whose values are finite
  float highest;

  // The value of code 0, which is sent together with `step`.
  TUTTI_HOST_DEVICE float min() const { return base - zero * step; }
};

// The smallest number with 16 significant bits that is ≥ value and a multiple of the smallest fp32; value ≥ 0.
TUTTI_HOST_DEVICE inline double RoundUpTo16Bits(double value) {
  constexpr double kSmallest = std::numeric_limits<float>::denorm_min();
  if (value < 0x1p16 * kSmallest) return std::ceil(value / kSmallest) * kSmallest;
  constexpr std::uint64_t kDropped = (std::uint64_t{1} << (52 - 15)) - 1;
  return std::bit_cast<double>((std::bit_cast<std::uint64_t>(value) + kDropped) & ~kDropped);
}

// The grid for finite values in [min, max] and codes up to `last` (≤ 255). With rounding to nearest, the outermost
// values may lie up to half a step beyond the outermost levels when zero is a level. With rounding at random they may
// not, because they would always be rounded the same way; the levels are then spread over one step more.
TUTTI_HOST_DEVICE inline Grid MakeGrid(float min, float max, int last, Rounding rounding) {
  constexpr double kLargest = std::numeric_limits<float>::max();
  const bool spans_zero = min <= 0 && max >= 0;
  const bool stretches = rounding == Rounding::kStochastic && min < 0 && max > 0;
  const double low = min;
  const double step = RoundUpTo16Bits((static_cast<double>(max) - low) / (stretches ? last - 1 : last));
  const double divisor = step > 0 ? step : 1.0;
  const double base = spans_zero ? 0.0 : low;
  // The levels whose values are not infinite: far more than there are codes, unless values are near the largest.
  double highest = 0x1p20;
  double lowest = -0x1p20;
  if (std::max(-low, static_cast<double>(max)) >= 0x1p100) {
    highest = std::floor((kLargest - base) / divisor);
    lowest = std::ceil((-kLargest - base) / divisor);
  }
  const double zero_code = stretches ? std::ceil(-low / divisor) : std::floor(-low / divisor + 0.5);
  const double zero = spans_zero ? std::min(zero_code, highest) : 0.0;
  return {static_cast<float>(base), static_cast<float>(step), static_cast<float>(zero),
          static_cast<float>(std::max(-zero, lowest)), static_cast<float>(std::min(last - zero, highest))};
}

// Adding kRoundToInteger to a small number rounds it to the nearest integer (ties to even), which is then in the low
// bits of the sum.
inline constexpr float kRoundToInteger = 0x1.8p23f;

TUTTI_HOST_DEVICE inline float LevelOf(const Grid& grid, float value) {
  const float level = (value - grid.base) / (grid.step > 0 ? grid.step : 1.0f);
  return std::min(std::max(level, grid.lowest), grid.highest);
}

// LevelOf without a division, which takes a GPU longer than all the rest of a code: the product with 1/step, whose
// error its remainder takes off. The result is the quotient, as grid_coder-inl.h derives for vectors of a CPU. Levels
// so small that their remainders are subnormal may differ in their last bits, where no code depends on them.
class QuickLevels {
 public:
  TUTTI_HOST_DEVICE explicit QuickLevels(const Grid& grid)
      : step_(grid.step), inverse_(1.0f / (serves() ? grid.step : 1.0f)) {}

  // Whether codes are those of LevelOf, with rounding to nearest, and at random.
  TUTTI_HOST_DEVICE bool serves() const { return step_ >= 0x1p-100f && step_ <= 0x1p100f; }
  TUTTI_HOST_DEVICE bool serves_at_random() const { return step_ >= 0x1p-60f && step_ <= 0.5f; }
  TUTTI_HOST_DEVICE float Of(const Grid& grid, float value) const {
    const float offset = value - grid.base;
    const float product = offset * inverse_;
#ifdef __CUDA_ARCH__
    const float level = __fmaf_rn(__fmaf_rn(-step_, product, offset), inverse_, product);
    return fminf(fmaxf(level, grid.lowest), grid.highest);
#else
    const float level = std::fma(std::fma(-step_, product, offset), inverse_, product);
    return std::min(std::max(level, grid.lowest), grid.highest);
#endif
  }

 private:
  float step_;
  float inverse_;
};

TUTTI_HOST_DEVICE inline std::uint8_t CodeOf(const Grid& grid, float level) {
  return static_cast<std::uint8_t>(std::bit_cast<std::uint32_t>(level + (kRoundToInteger + grid.zero)));
}

// Encodes `value`, which is finite and in the range that the grid was made for.
TUTTI_HOST_DEVICE inline std::uint8_t EncodeToGrid(const Grid& grid, float value) {
  return CodeOf(grid, LevelOf(grid, value));
}

// The code of a level that is rounded up with a probability equal to its distance from the integer below.
TUTTI_HOST_DEVICE inline std::uint8_t CodeAtRandom(const Grid& grid, float level, std::uint32_t word) {
  const float below = std::floor(level);
  return CodeOf(grid, UnitFromWord(word) < level - below ? below + 1.0f : below);
}

// Encodes with stochastic rounding, on a grid that was made for stochastic rounding.
TUTTI_HOST_DEVICE inline std::uint8_t EncodeToGrid(const Grid& grid, float value, std::uint32_t word) {
  return CodeAtRandom(grid, LevelOf(grid, value), word);
}

// The values of a block's codes, which the decoder computes from the two numbers of the block (the value of code 0, and
// the step). Values are computed at a quarter of their size where code · step could overflow. Only the sum of min and
// code · step is rounded, and where zero is one of the values not even this sum.
struct GridValues {
  float min;
  float step;
  float factor;
};

TUTTI_HOST_DEVICE inline GridValues MakeGridValues(float min, float step) {
  if (step >= 0x1p119f) return {0.25f * min, 0.25f * step, 4.0f};
  return {min, step, 1.0f};
}

TUTTI_HOST_DEVICE inline float DecodeFromGrid(const GridValues& values, std::uint8_t code) {
  return PlusExactProduct(values.min, static_cast<float>(code), values.step) * values.factor;
}

}  // namespace tutti::kernels

#endif  // TUTTI_KERNELS_GRID_H_
