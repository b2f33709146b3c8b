#include "kernels/quantize.h"

#include "kernels/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/quantize.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/grid_coder-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

struct MinMaxCoder {
  template <class D>
  HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> Encode(D d, hn::Vec<D> value, std::size_t /*index*/) const {
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

void EncodeGrid(const Grid& grid, const float* values, std::size_t count, const RandomStream* random,
                std::uint8_t* codes) {
  if (random != nullptr) return EncodeAll(RandomGridEncoder(grid, *random), values, count, 0, codes);
  EncodeAll(GridEncoder(grid), values, count, 0, codes);
}

void DecodeGrid(const GridValues& levels, const std::uint8_t* codes, std::size_t count, bool accumulate,
                float* values) {
  if (accumulate) return DecodeAll<true>(GridDecoder{levels}, codes, count, values);
  DecodeAll<false>(GridDecoder{levels}, codes, count, values);
}

void EncodeMinMax(const MinMaxLevels& levels, const float* values, std::size_t count, std::uint8_t* codes) {
  EncodeAll(MinMaxCoder{levels}, values, count, 0, codes);
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

void EncodeBlock(const Grid& grid, absl::Span<const float> values, const std::optional<RandomStream>& random,
                 std::uint8_t* codes) {
  HWY_DYNAMIC_DISPATCH(EncodeGrid)
  (grid, values.data(), values.size(), random.has_value() ? &*random : nullptr, codes);
}

void DecodeBlock(const GridValues& levels, const std::uint8_t* codes, bool accumulate, absl::Span<float> values) {
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
