#include "kernels/stochastic_cast.h"

#include "kernels/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/stochastic_cast.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/random-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

struct ToBFloat16 {
  template <class DU32>
  static HWY_INLINE hn::Vec<DU32> Cast(DU32 d, hn::Vec<DU32> bits, hn::Vec<DU32> word) {
    const hn::RebindToFloat<DU32> df32;
    const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::ShiftRight<16>(word)));
    const auto nan = hn::RebindMask(d, hn::IsNaN(hn::BitCast(df32, bits)));
    return hn::IfThenElse(nan, hn::Or(hn::ShiftRight<16>(bits), hn::Set(d, 0x40u)), rounded);
  }
};

struct ToFloat16 {
  template <class DU32>
  static HWY_INLINE hn::Vec<DU32> Cast(DU32 d, hn::Vec<DU32> bits, hn::Vec<DU32> word) {
    const hn::RebindToFloat<DU32> df32;
    const hn::RebindToSigned<DU32> di32;
    const auto sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 0x8000u));
    const auto magnitude = hn::And(bits, hn::Set(d, 0x7FFFFFFFu));
    const auto nan = hn::Or(hn::Set(d, 0x7E00u), hn::And(hn::ShiftRight<13>(magnitude), hn::Set(d, 0x3FFu)));
    const auto normal =
        hn::Min(hn::Sub(hn::ShiftRight<13>(hn::Add(magnitude, hn::ShiftRight<19>(word))), hn::Set(d, 112u << 10)),
                hn::Set(d, 0x7C00u));
    // Larger values are replaced by 0 here, so that the conversion to integers is defined for every lane.
    const auto is_small = hn::Lt(hn::BitCast(di32, magnitude), hn::Set(di32, 0x38800000));
    const auto small = hn::IfThenElseZero(hn::RebindMask(d, is_small), magnitude);
    const auto level = hn::Mul(hn::BitCast(df32, small), hn::Set(df32, 0x1p24f));
    const auto below = hn::ConvertTo(di32, level);
    const auto up = hn::Lt(UnitsFromWords(df32, word), hn::Sub(level, hn::ConvertTo(df32, below)));
    const auto one = hn::IfThenElseZero(hn::RebindMask(d, up), hn::Set(d, 1u));
    const auto subnormal = hn::Add(hn::BitCast(d, below), one);
    const auto is_nan = hn::Gt(hn::BitCast(di32, magnitude), hn::Set(di32, 0x7F800000));
    const auto finite = hn::IfThenElse(hn::RebindMask(d, is_small), subnormal, normal);
    return hn::Or(sign, hn::IfThenElse(hn::RebindMask(d, is_nan), nan, finite));
  }
};

template <class To, class D>
HWY_INLINE std::size_t CastVectors(D d, const float* src, std::size_t begin, std::size_t end, RandomStream random,
                                   std::size_t index, std::uint16_t* dst) {
  const hn::RebindToUnsigned<D> du32;
  const hn::Rebind<std::uint16_t, D> du16;
  std::size_t i = begin;
  for (; i + hn::Lanes(d) <= end; i += hn::Lanes(d)) {
    const auto bits = hn::BitCast(du32, hn::LoadU(d, src + i));
    hn::StoreU(hn::TruncateTo(du16, To::Cast(du32, bits, RandomWords(du32, random, index + i))), du16, dst + i);
  }
  return i;
}

template <class To>
void CastAll(const float* src, std::size_t count, RandomStream random, std::size_t index, std::uint16_t* dst) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> one;
  const std::size_t i = CastVectors<To>(d, src, 0, count, random, index, dst);
  CastVectors<To>(one, src, i, count, random, index, dst);
}

void CastHere(bool to_f16, const float* src, std::size_t count, RandomStream random, std::size_t index,
              std::uint16_t* dst) {
  if (to_f16) return CastAll<ToFloat16>(src, count, random, index, dst);
  CastAll<ToBFloat16>(src, count, random, index, dst);
}

}  // namespace tutti::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::kernels {

HWY_EXPORT(CastHere);

void CastAtRandom(DType type, const float* src, std::size_t count, RandomStream random, std::size_t index,
                  std::uint16_t* dst) {
  HWY_DYNAMIC_DISPATCH(CastHere)(type == DType::kF16, src, count, random, index, dst);
}

}  // namespace tutti::kernels
#endif  // HWY_ONCE
