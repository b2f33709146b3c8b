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

// Encodes whole vectors of values[begin, end), which are elements `index` + begin … of their block; returns where it
// stopped.
template <class D, class Coder>
HWY_INLINE std::size_t EncodeVectors(D d, const Coder& coder, const float* values, std::size_t begin, std::size_t end,
                                     std::size_t index, std::uint8_t* codes) {
  const hn::Rebind<std::uint8_t, D> du8;
  std::size_t i = begin;
  for (; i + hn::Lanes(d) <= end; i += hn::Lanes(d)) {
    hn::StoreU(hn::TruncateTo(du8, coder.Encode(d, hn::LoadU(d, values + i), index + i)), du8, codes + i);
  }
  return i;
}

template <bool kAccumulate, class D, class Coder>
HWY_INLINE std::size_t DecodeVectors(D d, const Coder& coder, const std::uint8_t* codes, std::size_t begin,
                                     std::size_t end, float* values) {
  const hn::Rebind<std::uint8_t, D> du8;
  const hn::RebindToSigned<D> di32;
  std::size_t i = begin;
  for (; i + hn::Lanes(d) <= end; i += hn::Lanes(d)) {
    auto v = coder.Decode(d, hn::ConvertTo(d, hn::PromoteTo(di32, hn::LoadU(du8, codes + i))));
    if constexpr (kAccumulate) v = hn::Add(hn::LoadU(d, values + i), v);
    hn::StoreU(v, d, values + i);
  }
  return i;
}

template <class Coder>
HWY_INLINE void EncodeAll(const Coder& coder, const float* values, std::size_t count, std::size_t index,
                          std::uint8_t* codes) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> one;
  const std::size_t i = EncodeVectors(d, coder, values, 0, count, index, codes);
  EncodeVectors(one, coder, values, i, count, index, codes);
}

template <bool kAccumulate, class Coder>
HWY_INLINE void DecodeAll(const Coder& coder, const std::uint8_t* codes, std::size_t count, float* values) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> one;
  const std::size_t i = DecodeVectors<kAccumulate>(d, coder, codes, 0, count, values);
  DecodeVectors<kAccumulate>(one, coder, codes, i, count, values);
}

}  // namespace tutti::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TUTTI_KERNELS_GRID_CODER_INL_H_
