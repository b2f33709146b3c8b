// How the coders of blocks with a range (range_blocks.h) place their levels, encode and decode, on vectors. Included
// once per instruction set.
//
// A scheme has kBits, of a code; Levels, which are made of the range of a block, together with the two numbers that are
// sent for the block; EncoderOf(levels, index of the block); QuickEncoderOf, which takes less time and gives the same
// codes where HasQuickEncoder(levels); and DecoderOf(numbers).
#if defined(TUTTI_KERNELS_RANGE_SCHEMES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TUTTI_KERNELS_RANGE_SCHEMES_INL_H_
#undef TUTTI_KERNELS_RANGE_SCHEMES_INL_H_
#else
#define TUTTI_KERNELS_RANGE_SCHEMES_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/grid_coder-inl.h"
#include "kernels/minmax_levels.h"
#include "tutti/codecs/finite_range.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// grid.h, with codes of kBits bits.
template <int kBitsOfCode, bool kRandom>
struct GridScheme {
  static constexpr int kBits = kBitsOfCode;
  using Levels = Grid;

  static HWY_INLINE Levels LevelsOf(const FiniteRange& range, float (&numbers)[2]) {
    const Grid grid =
        MakeGrid(range.min, range.max, (1 << kBits) - 1, kRandom ? Rounding::kStochastic : Rounding::kNearest);
    numbers[0] = grid.min();
    numbers[1] = grid.step;
    return grid;
  }
  HWY_INLINE auto EncoderOf(const Levels& grid, std::int64_t index) const {
    if constexpr (kRandom) {
      return RandomGridEncoder(grid, MakeRandomStream(seed, draw, static_cast<std::uint64_t>(index)));
    } else {
      return GridEncoder<PlainDivider>(grid);
    }
  }
  static HWY_INLINE bool HasQuickEncoder(const Levels& grid) {
    return HWY_NATIVE_FMA != 0 && !kRandom && StepDivider::Serves(grid);
  }
  static HWY_INLINE auto QuickEncoderOf(const Levels& grid, std::int64_t /*index*/) {
    return GridEncoder<StepDivider>(grid);
  }
  static HWY_INLINE GridDecoder DecoderOf(const float (&numbers)[2]) {
    return {MakeGridValues(numbers[0], numbers[1])};
  }

  std::uint64_t seed = 0;
  std::uint64_t draw = 0;
};

struct MinMaxCoder {
  template <class D>
  HWY_INLINE hn::Vec<hn::RebindToSigned<D>> Encode(D d, hn::Vec<D> value, std::size_t /*index*/) const {
    const hn::RebindToSigned<D> di32;
    const auto upper = hn::Set(d, levels.upper);
    const auto rounded = hn::Round(hn::Mul(value, hn::Set(d, levels.scale)));
    const auto limited = hn::IfThenElse(hn::Lt(rounded, upper), rounded, upper);
    const auto level = hn::Sub(limited, hn::Set(d, levels.lower));
    const auto positive = hn::IfThenElseZero(hn::Gt(level, hn::Zero(d)), level);
    const auto clamped = hn::Min(positive, hn::Set(d, 255.0f));
    return hn::ConvertTo(di32, clamped);
  }
  template <class DU8>
  HWY_INLINE hn::Vec<DU8> Limit(DU8 /*d*/, hn::Vec<DU8> codes) const {
    return codes;
  }
  template <class D>
  HWY_INLINE hn::Vec<D> Decode(D d, hn::Vec<D> code) const {
    return hn::Div(hn::Add(code, hn::Set(d, levels.lower)), hn::Set(d, levels.scale));
  }

  MinMaxLevels levels;
};

// minmax_levels.h.
struct MinMaxScheme {
  static constexpr int kBits = 8;
  using Levels = MinMaxLevels;

  static HWY_INLINE Levels LevelsOf(const FiniteRange& range, float (&numbers)[2]) {
    // Adding 0 makes the sign of a zero positive; it would otherwise depend on the order of comparisons.
    numbers[0] = range.min + 0.0f;
    numbers[1] = range.max + 0.0f;
    return MakeMinMaxLevels(numbers[0], numbers[1]);
  }
  static HWY_INLINE MinMaxCoder EncoderOf(const Levels& levels, std::int64_t /*index*/) { return {levels}; }
  static HWY_INLINE bool HasQuickEncoder(const Levels& /*levels*/) { return false; }
  static HWY_INLINE MinMaxCoder QuickEncoderOf(const Levels& levels, std::int64_t index) {
    return EncoderOf(levels, index);
  }
  static HWY_INLINE MinMaxCoder DecoderOf(const float (&numbers)[2]) {
    return {MakeMinMaxLevels(numbers[0], numbers[1])};
  }
};

}  // namespace tutti::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TUTTI_KERNELS_RANGE_SCHEMES_INL_H_
