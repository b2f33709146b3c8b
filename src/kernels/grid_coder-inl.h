// The functions of grid.h on vectors, and loops over them that write and read one byte per code. Included once per
// instruction set.
#if defined(TUTTI_KERNELS_GRID_CODER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TUTTI_KERNELS_GRID_CODER_INL_H_
#undef TUTTI_KERNELS_GRID_CODER_INL_H_
#else
#define TUTTI_KERNELS_GRID_CODER_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/grid.h"
#include "kernels/random-inl.h"
#include "kernels/read_ahead.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

class GridEncoder {
 public:
  explicit GridEncoder(const Grid& grid)
      : grid_(grid), divisor_(grid.step > 0 ? grid.step : 1.0f), rounder_(kRoundToInteger + grid.zero) {}

  // The codes of `value`, each in the low byte of its lane; the values are elements `index` … of the block.
  template <class D>
  HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> Encode(D d, hn::Vec<D> value, std::size_t /*index*/) const {
    return CodeOf(d, LevelOf(d, value));
  }

 protected:
  template <class D>
  HWY_INLINE hn::Vec<D> LevelOf(D d, hn::Vec<D> value) const {
    const auto level = hn::Div(hn::Sub(value, hn::Set(d, grid_.base)), hn::Set(d, divisor_));
    return hn::Min(hn::Max(level, hn::Set(d, grid_.lowest)), hn::Set(d, grid_.highest));
  }
  template <class D>
  HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> CodeOf(D d, hn::Vec<D> level) const {
    return hn::BitCast(hn::RebindToUnsigned<D>(), hn::Add(level, hn::Set(d, rounder_)));
  }

 private:
  const Grid grid_;
  const float divisor_;
  const float rounder_;
};

// The encoder with stochastic rounding.
class RandomGridEncoder : public GridEncoder {
 public:
  RandomGridEncoder(const Grid& grid, RandomStream random) : GridEncoder(grid), random_(random) {}

  template <class D>
  HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> Encode(D d, hn::Vec<D> value, std::size_t index) const {
    const auto level = LevelOf(d, value);
    const auto below = hn::Floor(level);
    const auto unit = UnitsFromWords(d, RandomWords(hn::RebindToUnsigned<D>(), random_, index));
    const auto up = hn::IfThenElseZero(hn::Lt(unit, hn::Sub(level, below)), hn::Set(d, 1.0f));
    return CodeOf(d, hn::Add(below, up));
  }

 private:
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
  hn::StoreU(hn::TruncateTo(du8, coder.Encode(d, hn::LoadU(d, values), index)), du8, codes);
}

template <bool kAccumulate, class D, class Coder>
HWY_INLINE void DecodeVector(D d, const Coder& coder, const std::uint8_t* codes, float* values) {
  const hn::Rebind<std::uint8_t, D> du8;
  const hn::RebindToSigned<D> di32;
  auto v = coder.Decode(d, hn::ConvertTo(d, hn::PromoteTo(di32, hn::LoadU(du8, codes))));
  if constexpr (kAccumulate) v = hn::Add(hn::LoadU(d, values), v);
  hn::StoreU(v, d, values);
}

// Encodes values[0, count), which are elements `index` … of their block, as one byte each.
template <class Coder>
HWY_INLINE void EncodeAll(const Coder& coder, const float* values, std::size_t count, std::size_t index,
                          std::uint8_t* codes) {
  const hn::CappedTag<float, 16> d;
  const hn::CappedTag<float, 1> one;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + kStride <= count; i += kStride) {
    for (std::size_t k = i; k < i + kStride; k += lanes) EncodeVector(d, coder, values + k, index + k, codes + k);
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
