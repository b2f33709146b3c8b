// The functions of grid.h on vectors, and loops over them that write and read one byte per code. Included once per
// instruction set.
#if defined(TUTTI_KERNELS_GRID_CODER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TUTTI_KERNELS_GRID_CODER_INL_H_
#undef TUTTI_KERNELS_GRID_CODER_INL_H_
#else
#define TUTTI_KERNELS_GRID_CODER_INL_H_
#endif

#include <bit>
#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/grid.h"
#include "kernels/random-inl.h"
#include "kernels/read_ahead.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline float DivisorOf(const Grid& grid) { return grid.step > 0 ? grid.step : 1.0f; }

// Divides by the step of a grid. A step has 16 significant bits at most, and so, where the processor has fused
// multiplications, a product with the reciprocal that is corrected by its remainder equals the quotient of a division
// bit for bit, in a third of the time:
// - the product is off by two units in its last place at most, so that the remainder is exact;
// - the corrected product is within 2^-22 units of the true quotient, before it is rounded;
// - the true quotient is at least 2^-17 units from the middle between two floats, so that both are rounded alike.
// Quotients that underflow are far below 1/2: they need not equal those of a division, but are rounded to level 0 as
// these are.
class StepDivider {
 public:
  explicit StepDivider(const Grid& grid)
      : base_(grid.base), step_(DivisorOf(grid)), reciprocal_(1.0f / DivisorOf(grid)) {}

  // Whether no result is near the largest or the smallest floats.
  static HWY_INLINE bool Serves(const Grid& grid) {
    const float step = DivisorOf(grid);
    return step >= 0x1p-60f && step <= 0x1p60f;
  }

  // (value - grid.base) / grid.step
  template <class D>
  HWY_INLINE hn::Vec<D> LevelOf(D d, hn::Vec<D> value) const {
    const auto reciprocal = hn::Set(d, reciprocal_);
    const auto difference = hn::Sub(value, hn::Set(d, base_));
    const auto product = hn::Mul(difference, reciprocal);
    const auto remainder = hn::NegMulAdd(product, hn::Set(d, step_), difference);
    return hn::MulAdd(remainder, reciprocal, product);
  }

 private:
  const float base_;
  const float step_;
  const float reciprocal_;
};

// Divides by the step of any grid, also where quotients are the smallest.
class PlainDivider {
 public:
  explicit PlainDivider(const Grid& grid) : base_(grid.base), step_(DivisorOf(grid)) {}

  template <class D>
  HWY_INLINE hn::Vec<D> LevelOf(D d, hn::Vec<D> value) const {
    return hn::Div(hn::Sub(value, hn::Set(d, base_)), hn::Set(d, step_));
  }

 private:
  const float base_;
  const float step_;
};

// How levels become codes: the code of level 0 is added, the sum rounded to an integer, and the integer limited to the
// codes of a grid. A level may lie beyond those of the grid, but not near the largest integers.
class LevelCoder {
 public:
  explicit LevelCoder(const Grid& grid)
      : rounder_(kRoundToInteger + grid.zero),
        lowest_(static_cast<std::uint8_t>(grid.lowest + grid.zero)),
        highest_(static_cast<std::uint8_t>(grid.highest + grid.zero)) {}

  template <class D>
  HWY_INLINE hn::Vec<hn::RebindToSigned<D>> Round(D d, hn::Vec<D> level) const {
    const hn::RebindToSigned<D> di32;
    constexpr auto kZero = std::bit_cast<std::int32_t>(kRoundToInteger);
    return hn::Sub(hn::BitCast(di32, hn::Add(level, hn::Set(d, rounder_))), hn::Set(di32, kZero));
  }
  template <class DU8>
  HWY_INLINE hn::Vec<DU8> Limit(DU8 d, hn::Vec<DU8> codes) const {
    return hn::Min(hn::Max(codes, hn::Set(d, lowest_)), hn::Set(d, highest_));
  }

 private:
  const float rounder_;
  const std::uint8_t lowest_;
  const std::uint8_t highest_;
};

// An encoder gives integers for `value`, which are elements `index` … of the block. Their codes are the nearest numbers
// of one byte, limited.
template <class Divider>
class GridEncoder : public LevelCoder {
 public:
  explicit GridEncoder(const Grid& grid) : LevelCoder(grid), divider_(grid) {}

  template <class D>
  HWY_INLINE hn::Vec<hn::RebindToSigned<D>> Encode(D d, hn::Vec<D> value, std::size_t /*index*/) const {
    return Round(d, divider_.LevelOf(d, value));
  }

 private:
  const Divider divider_;
};

// The encoder with stochastic rounding, which sometimes rounds even the smallest quotient up, and so divides.
class RandomGridEncoder : public LevelCoder {
 public:
  RandomGridEncoder(const Grid& grid, RandomStream random) : LevelCoder(grid), divider_(grid), random_(random) {}

  template <class D>
  HWY_INLINE hn::Vec<hn::RebindToSigned<D>> Encode(D d, hn::Vec<D> value, std::size_t index) const {
    const auto level = divider_.LevelOf(d, value);
    const auto below = hn::Floor(level);
    const auto unit = UnitsFromWords(d, RandomWords(hn::RebindToUnsigned<D>(), random_, index));
    const auto up = hn::IfThenElseZero(hn::Lt(unit, hn::Sub(level, below)), hn::Set(d, 1.0f));
    return Round(d, hn::Add(below, up));
  }

 private:
  const PlainDivider divider_;
  const RandomStream random_;
};

struct GridDecoder {
  template <class D>
  HWY_INLINE hn::Vec<D> Decode(D d, hn::Vec<D> code) const {
    const auto sum = hn::Add(hn::Set(d, levels.min), hn::Mul(code, hn::Set(d, levels.step)));
    return hn::Mul(sum, hn::Set(d, levels.factor));
  }

  GridValues levels;
};

template <class D, class Coder>
HWY_INLINE void EncodeVector(D d, const Coder& coder, const float* values, std::size_t index, std::uint8_t* codes) {
  const hn::Rebind<std::uint8_t, D> du8;
  const auto integers = coder.Encode(d, hn::LoadU(d, values), index);
  hn::StoreU(coder.Limit(du8, hn::DemoteTo(du8, integers)), du8, codes);
}

// Encodes four vectors.
template <class D, class Coder>
HWY_INLINE void EncodeFour(D d, const Coder& coder, const float* values, std::size_t index, std::uint8_t* codes) {
  const std::size_t lanes = hn::Lanes(d);
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
  const hn::Repartition<std::uint8_t, D> du8;
  const hn::Repartition<std::int16_t, D> di16;
  const hn::RebindToSigned<D> di32;
  const auto encode = [&](std::size_t k)
                          HWY_ATTR { return coder.Encode(d, hn::LoadU(d, values + k * lanes), index + k * lanes); };
  const auto low = hn::ReorderDemote2To(di16, encode(0), encode(1));
  const auto high = hn::ReorderDemote2To(di16, encode(2), encode(3));
  // Each 16 bytes now have four codes of each vector.
#if HWY_TARGET == HWY_AVX2
  const hn::Vec<decltype(du8)> codes_by_four{_mm256_packus_epi16(low.raw, high.raw)};
  HWY_ALIGN static constexpr std::int32_t kOrder[] = {0, 4, 1, 5, 2, 6, 3, 7};
#else
  const hn::Vec<decltype(du8)> codes_by_four{_mm512_packus_epi16(low.raw, high.raw)};
  HWY_ALIGN static constexpr std::int32_t kOrder[] = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
#endif
  const auto ordered = hn::TableLookupLanes(hn::BitCast(di32, codes_by_four), hn::SetTableIndices(di32, kOrder));
  hn::StoreU(coder.Limit(du8, hn::BitCast(du8, ordered)), du8, codes);
#else
  for (std::size_t k = 0; k < 4 * lanes; k += lanes) EncodeVector(d, coder, values + k, index + k, codes + k);
#endif
}

template <bool kAccumulate, class D, class Coder>
HWY_INLINE void DecodeVector(D d, const Coder& coder, const std::uint8_t* codes, float* values) {
  const hn::Rebind<std::uint8_t, D> du8;
  const hn::RebindToSigned<D> di32;
  auto v = coder.Decode(d, hn::ConvertTo(d, hn::PromoteTo(di32, hn::LoadU(du8, codes))));
  if constexpr (kAccumulate) v = hn::Add(hn::LoadU(d, values), v);
  hn::StoreU(v, d, values);
}

// Encodes values[0, count), which are elements `index` … of their block, as one byte each. `ahead` prefetches the
// second half of each stride: RangeOf (finite_range-inl.h), which has gone through the values before, prefetches the
// first.
template <class Coder, class Ahead>
HWY_INLINE void EncodeAll(const Coder& coder, const float* values, std::size_t count, std::size_t index,
                          const Ahead& ahead, std::uint8_t* codes) {
  const hn::CappedTag<float, 16> d;
  const hn::CappedTag<float, 1> one;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + kStride <= count; i += kStride) {
    ahead.template At<kHalfStrideBytes>(values + i + kStride / 2);
    for (std::size_t k = i; k < i + kStride; k += 4 * lanes) EncodeFour(d, coder, values + k, index + k, codes + k);
  }
  for (; i + lanes <= count; i += lanes) EncodeVector(d, coder, values + i, index + i, codes + i);
  for (; i < count; ++i) EncodeVector(one, coder, values + i, index + i, codes + i);
}

// Decodes `count` codes of one byte each. `ahead_of_codes` and `ahead_of_values` prefetch the memory of both.
template <bool kAccumulate, class Coder, class AheadOfCodes, class AheadOfValues>
HWY_INLINE void DecodeAll(const Coder& coder, const std::uint8_t* codes, std::size_t count,
                          const AheadOfCodes& ahead_of_codes, const AheadOfValues& ahead_of_values, float* values) {
  const hn::CappedTag<float, 16> d;
  const hn::CappedTag<float, 1> one;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + kStride <= count; i += kStride) {
    ahead_of_codes.template At<kStride>(codes + i);
    ahead_of_values.template At<kStride * sizeof(float)>(values + i);
    for (std::size_t k = i; k < i + kStride; k += lanes) DecodeVector<kAccumulate>(d, coder, codes + k, values + k);
  }
  for (; i + lanes <= count; i += lanes) DecodeVector<kAccumulate>(d, coder, codes + i, values + i);
  for (; i < count; ++i) DecodeVector<kAccumulate>(one, coder, codes + i, values + i);
}

}  // namespace tutti::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TUTTI_KERNELS_GRID_CODER_INL_H_
