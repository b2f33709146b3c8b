#include "kernels/cast_blocks.h"

#include <cstddef>
#include <cstring>

#include "kernels/highway_targets.h"
#include "kernels/stochastic_cast.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cast_blocks.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/floating_format-inl.h"
#include "kernels/random-inl.h"
#include "kernels/read_ahead.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr std::size_t kElementBytes = sizeof(std::uint16_t);

// Rounding at random, of the bits of fp32.
struct ToBFloat16 {
  static std::uint16_t CastOne(float value, std::uint32_t word) { return BFloat16AtRandom(value, word); }
  template <class DU32>
  static HWY_INLINE hn::Vec<DU32> Cast(DU32 d, hn::Vec<DU32> bits, hn::Vec<DU32> word) {
    const hn::RebindToFloat<DU32> df32;
    const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::ShiftRight<16>(word)));
    const auto nan = hn::RebindMask(d, hn::IsNaN(hn::BitCast(df32, bits)));
    return hn::IfThenElse(nan, hn::Or(hn::ShiftRight<16>(bits), hn::Set(d, 0x40u)), rounded);
  }
};

struct ToFloat16 {
  static std::uint16_t CastOne(float value, std::uint32_t word) { return Float16AtRandom(value, word); }
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

// What rounds element `index`.
template <class Format>
struct ToNearest {
  template <class D>
  HWY_INLINE hn::Vec<hn::Rebind<std::uint16_t, D>> Cast(D d, hn::Vec<D> value, std::size_t /*index*/) const {
    return Format::Narrowed(d, value);
  }
  HWY_INLINE std::uint16_t CastOne(float value, std::size_t /*index*/) const { return Format::NarrowedOne(value); }
};

template <class To>
struct AtRandom {
  template <class D>
  HWY_INLINE hn::Vec<hn::Rebind<std::uint16_t, D>> Cast(D /*d*/, hn::Vec<D> value, std::size_t index) const {
    const hn::RebindToUnsigned<D> du32;
    const auto bits = To::Cast(du32, hn::BitCast(du32, value), RandomWords(du32, random, index));
    return hn::TruncateTo(hn::Rebind<std::uint16_t, D>(), bits);
  }
  HWY_INLINE std::uint16_t CastOne(float value, std::size_t index) const {
    return To::CastOne(value, RandomWord(random, static_cast<std::uint32_t>(index)));
  }

  RandomStream random;
};

template <class Rounding>
void EncodeAllCasts(const Rounding& rounding, const float* values, std::size_t count, std::uint8_t* message) {
  std::size_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const ReadAhead<Access::kRead> ahead(values, count * sizeof(float), kCastDistance);
  const hn::CappedTag<float, 16> d;
  const hn::Repartition<std::uint8_t, hn::Rebind<std::uint16_t, hn::CappedTag<float, 16>>> bytes;
  for (; i + kStride <= count; i += kStride) {
    ahead.At<kStride * sizeof(float)>(values + i);
    for (std::size_t k = i; k < i + kStride; k += hn::Lanes(d)) {
      const auto cast = rounding.Cast(d, hn::LoadU(d, values + k), k);
      hn::StoreU(hn::BitCast(bytes, cast), bytes, message + k * kElementBytes);
    }
  }
#endif
  for (; i < count; ++i) {
    const std::uint16_t cast = rounding.CastOne(values[i], i);
    std::memcpy(message + i * kElementBytes, &cast, kElementBytes);
  }
}

template <class Format, bool kAccumulate>
void DecodeAllCasts(const std::uint8_t* message, std::size_t count, float* values) {
  std::size_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const ReadAhead<Access::kRead> ahead_of_message(message, count * kElementBytes, kCodeDistance);
  const ReadAhead<Access::kUpdate> ahead_of_values(values, count * sizeof(float), kUpdateDistance);
  const hn::CappedTag<float, 16> d;
  const hn::Rebind<std::uint16_t, hn::CappedTag<float, 16>> du16;
  const hn::Repartition<std::uint8_t, hn::Rebind<std::uint16_t, hn::CappedTag<float, 16>>> bytes;
  for (; i + kStride <= count; i += kStride) {
    ahead_of_message.At<kStride * kElementBytes>(message + i * kElementBytes);
    ahead_of_values.At<kStride * sizeof(float)>(values + i);
    for (std::size_t k = i; k < i + kStride; k += hn::Lanes(d)) {
      auto v = Format::Widened(d, hn::BitCast(du16, hn::LoadU(bytes, message + k * kElementBytes)));
      if constexpr (kAccumulate) v = hn::Add(hn::LoadU(d, values + k), v);
      hn::StoreU(v, d, values + k);
    }
  }
#endif
  for (; i < count; ++i) {
    std::uint16_t element;
    std::memcpy(&element, message + i * kElementBytes, kElementBytes);
    const float value = Format::WidenedOne(element);
    values[i] = kAccumulate ? values[i] + value : value;
  }
}

void EncodeCastsHere(const MessageLayout& layout, const float* values, std::uint64_t draw, std::uint8_t* message) {
  const auto count = static_cast<std::size_t>(layout.count);
  const bool to_f16 = layout.coder == Coder::kF16;
  if (layout.stochastic) {
    const RandomStream random = MakeRandomStream(layout.seed, draw, 0);
    if (to_f16) return EncodeAllCasts(AtRandom<ToFloat16>{random}, values, count, message);
    return EncodeAllCasts(AtRandom<ToBFloat16>{random}, values, count, message);
  }
  if (to_f16) return EncodeAllCasts(ToNearest<Float16Format>(), values, count, message);
  EncodeAllCasts(ToNearest<BFloat16Format>(), values, count, message);
}

template <bool kAccumulate>
void DecodeFormat(const MessageLayout& layout, const std::uint8_t* message, float* values) {
  const auto count = static_cast<std::size_t>(layout.count);
  if (layout.coder == Coder::kF16) return DecodeAllCasts<Float16Format, kAccumulate>(message, count, values);
  DecodeAllCasts<BFloat16Format, kAccumulate>(message, count, values);
}

void DecodeCastsHere(const MessageLayout& layout, const std::uint8_t* message, bool accumulate, float* values) {
  if (accumulate) return DecodeFormat<true>(layout, message, values);
  DecodeFormat<false>(layout, message, values);
}

}  // namespace tutti::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::kernels {
namespace {

HWY_EXPORT(EncodeCastsHere);
HWY_EXPORT(DecodeCastsHere);

}  // namespace

void EncodeCastBlocks(const MessageLayout& layout, const float* values, std::uint64_t draw, std::uint8_t* message) {
  HWY_DYNAMIC_DISPATCH(EncodeCastsHere)(layout, values, draw, message);
}

void DecodeCastBlocks(const MessageLayout& layout, const std::uint8_t* message, bool accumulate, float* values) {
  HWY_DYNAMIC_DISPATCH(DecodeCastsHere)(layout, message, accumulate, values);
}

}  // namespace tutti::kernels
#endif  // HWY_ONCE
