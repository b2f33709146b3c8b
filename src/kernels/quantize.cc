#include "kernels/quantize.h"

#include "kernels/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/quantize.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

struct GridEncoder {
  explicit GridEncoder(const Uint8Grid& from)
      : grid(from), divisor(from.step > 0 ? from.step : 1.0f), rounder(kRoundToInteger + from.zero) {}

  template <class D>
  HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> Encode(D d, hn::Vec<D> value) const {
    const hn::RebindToUnsigned<D> du32;
    const auto level = hn::Div(hn::Sub(value, hn::Set(d, grid.base)), hn::Set(d, divisor));
    const auto clamped = hn::Min(hn::Max(level, hn::Set(d, grid.lowest)), hn::Set(d, grid.highest));
    return hn::BitCast(du32, hn::Add(clamped, hn::Set(d, rounder)));  // the code is the low byte
  }

  Uint8Grid grid;
  float divisor;
  float rounder;
};

struct GridDecoder {
  template <class D>
  HWY_INLINE hn::Vec<D> Decode(D d, hn::Vec<D> code) const {
    const auto sum = hn::Add(hn::Set(d, levels.min), hn::Mul(code, hn::Set(d, levels.step)));
    return hn::Mul(sum, hn::Set(d, levels.factor));
  }

  Uint8Values levels;
};

struct MinMaxCoder {
  template <class D>
  HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> Encode(D d, hn::Vec<D> value) const {
    const hn::RebindToSigned<D> di32;
    const auto upper = hn::Set(d, levels.upper);
    const auto rounded = hn::Round(hn::Mul(value, hn::Set(d, levels.scale)));
    const auto limited = hn::IfThenElse(hn::Lt(rounded, upper), rounded, upper);
    const auto level = hn::Sub(limited, hn::Set(d, levels.lower));
    const auto positive = hn::IfThenElseZero(hn::Gt(level, hn::Zero(d)), level);
    const auto clamped = hn::Min(positive, hn::Set(d, 255.0f));
    return hn::BitCast(hn::RebindToUnsigned<D>(), hn::ConvertTo(di32, clamped));
  }
  template <class D>
  HWY_INLINE hn::Vec<D> Decode(D d, hn::Vec<D> code) const {
    return hn::Div(hn::Add(code, hn::Set(d, levels.lower)), hn::Set(d, levels.scale));
  }

  MinMaxLevels levels;
};

template <class D, class Coder>
HWY_INLINE std::size_t EncodeVectors(D d, const Coder& coder, const float* values, std::size_t begin, std::size_t end,
                                     std::uint8_t* codes) {
  const hn::Rebind<std::uint8_t, D> du8;
  std::size_t i = begin;
  for (; i + hn::Lanes(d) <= end; i += hn::Lanes(d)) {
    hn::StoreU(hn::TruncateTo(du8, coder.Encode(d, hn::LoadU(d, values + i))), du8, codes + i);
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
void EncodeAll(const Coder& coder, const float* values, std::size_t count, std::uint8_t* codes) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> one;
  EncodeVectors(one, coder, values, EncodeVectors(d, coder, values, 0, count, codes), count, codes);
}

template <bool kAccumulate, class Coder>
void DecodeAll(const Coder& coder, const std::uint8_t* codes, std::size_t count, float* values) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> one;
  const std::size_t i = DecodeVectors<kAccumulate>(d, coder, codes, 0, count, values);
  DecodeVectors<kAccumulate>(one, coder, codes, i, count, values);
}

void EncodeGrid(const Uint8Grid& grid, const float* values, std::size_t count, std::uint8_t* codes) {
  EncodeAll(GridEncoder(grid), values, count, codes);
}

void DecodeGrid(const Uint8Values& levels, const std::uint8_t* codes, std::size_t count, bool accumulate,
                float* values) {
  if (accumulate) return DecodeAll<true>(GridDecoder{levels}, codes, count, values);
  DecodeAll<false>(GridDecoder{levels}, codes, count, values);
}

void EncodeMinMax(const MinMaxLevels& levels, const float* values, std::size_t count, std::uint8_t* codes) {
  EncodeAll(MinMaxCoder{levels}, values, count, codes);
}

void DecodeMinMax(const MinMaxLevels& levels, const std::uint8_t* codes, std::size_t count, bool accumulate,
                  float* values) {
  if (accumulate) return DecodeAll<true>(MinMaxCoder{levels}, codes, count, values);
  DecodeAll<false>(MinMaxCoder{levels}, codes, count, values);
}

}  // namespace tutti::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::kernels {

HWY_EXPORT(EncodeGrid);
HWY_EXPORT(DecodeGrid);
HWY_EXPORT(EncodeMinMax);
HWY_EXPORT(DecodeMinMax);

void EncodeBlock(const Uint8Grid& grid, absl::Span<const float> values, std::uint8_t* codes) {
  HWY_DYNAMIC_DISPATCH(EncodeGrid)(grid, values.data(), values.size(), codes);
}

void DecodeBlock(const Uint8Values& levels, const std::uint8_t* codes, bool accumulate, absl::Span<float> values) {
  HWY_DYNAMIC_DISPATCH(DecodeGrid)(levels, codes, values.size(), accumulate, values.data());
}

void EncodeBlock(const MinMaxLevels& levels, absl::Span<const float> values, std::uint8_t* codes) {
  HWY_DYNAMIC_DISPATCH(EncodeMinMax)(levels, values.data(), values.size(), codes);
}

void DecodeBlock(const MinMaxLevels& levels, const std::uint8_t* codes, bool accumulate, absl::Span<float> values) {
  HWY_DYNAMIC_DISPATCH(DecodeMinMax)(levels, codes, values.size(), accumulate, values.data());
}

}  // namespace tutti::kernels
#endif  // HWY_ONCE
