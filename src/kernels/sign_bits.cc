#include "kernels/sign_bits.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/sign_bits.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/read_ahead.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

HWY_INLINE double SumOfMagnitudes(const float* values, std::size_t count, const ReadAhead<Access::kRead>& ahead) {
  constexpr std::size_t kSums = kPartialSums;
  const hn::CappedTag<double, 4> d;
  const hn::Rebind<float, hn::CappedTag<double, 4>> df32;
  const std::size_t lanes = hn::Lanes(d);
  const std::size_t whole = count - count % kSums;
  HWY_ALIGN double sums[kSums];
  // All sums at once where a vector has four lanes.
  for (std::size_t first = 0; first < kSums; first += 4 * lanes) {
    auto sum0 = hn::Zero(d);
    auto sum1 = hn::Zero(d);
    auto sum2 = hn::Zero(d);
    auto sum3 = hn::Zero(d);
    for (const float* at = values + first; at < values + whole; at += kSums) {
      if ((at - values) % kStride == 0) ahead.At<kStride * sizeof(float)>(at);
      sum0 = hn::Add(sum0, hn::Abs(hn::PromoteTo(d, hn::LoadU(df32, at))));
      sum1 = hn::Add(sum1, hn::Abs(hn::PromoteTo(d, hn::LoadU(df32, at + lanes))));
      sum2 = hn::Add(sum2, hn::Abs(hn::PromoteTo(d, hn::LoadU(df32, at + 2 * lanes))));
      sum3 = hn::Add(sum3, hn::Abs(hn::PromoteTo(d, hn::LoadU(df32, at + 3 * lanes))));
    }
    hn::StoreU(sum0, d, sums + first);
    hn::StoreU(sum1, d, sums + first + lanes);
    hn::StoreU(sum2, d, sums + first + 2 * lanes);
    hn::StoreU(sum3, d, sums + first + 3 * lanes);
  }
  for (std::size_t i = whole; i < count; ++i) sums[i - whole] += static_cast<double>(std::fabs(values[i]));
  for (std::size_t half = kSums / 2; half > 0; half /= 2) {
    for (std::size_t k = 0; k < half; ++k) sums[k] += sums[k + half];
  }
  return sums[0];
}

HWY_INLINE void PackSigns(const float* values, std::size_t count, std::uint8_t* bits) {
  std::size_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::CappedTag<float, 16> d;
  const hn::RebindToUnsigned<hn::CappedTag<float, 16>> du32;
  const auto at_odd = hn::RebindMask(d, hn::TestBit(hn::Iota(du32, 0u), hn::Set(du32, 1u)));
  const std::size_t lanes = hn::Lanes(d);
  for (; lanes >= 8 && i + lanes <= count; i += lanes) {
    const auto v = hn::LoadU(d, values + i);
    const auto zero = hn::And(hn::Eq(v, hn::Zero(d)), at_odd);
    std::uint8_t part[8];
    hn::StoreMaskBits(d, hn::Or(hn::Lt(v, hn::Zero(d)), zero), part);
    std::memcpy(bits + i / 8, part, lanes / 8);
  }
#endif
  for (; i < count; i += 8) {
    std::uint32_t byte = 0;
    for (std::size_t k = 0; k < 8 && i + k < count; ++k) {
      byte |= static_cast<std::uint32_t>(IsSentNegative(values[i + k], k)) << k;
    }
    bits[i / 8] = static_cast<std::uint8_t>(byte);
  }
}

template <bool kAccumulate>
HWY_INLINE void UnpackSigns(float scale, const std::uint8_t* bits, std::size_t count,
                            [[maybe_unused]] const ReadAhead<Access::kUpdate>& ahead, float* values) {
  std::size_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::CappedTag<float, 16> d;
  const auto positive = hn::Set(d, scale);
  const auto negative = hn::Set(d, -scale);
  const std::size_t lanes = hn::Lanes(d);
  for (; lanes >= 8 && i + lanes <= count; i += lanes) {
    if (i % kStride == 0) ahead.At<kStride * sizeof(float)>(values + i);
    std::uint8_t part[8] = {};
    std::memcpy(part, bits + i / 8, lanes / 8);
    auto v = hn::IfThenElse(hn::LoadMaskBits(d, part), negative, positive);
    if constexpr (kAccumulate) v = hn::Add(hn::LoadU(d, values + i), v);
    hn::StoreU(v, d, values + i);
  }
#endif
  for (; i < count; ++i) {
    const float value = bits[i / 8] >> (i % 8) & 1 ? -scale : scale;
    values[i] = kAccumulate ? values[i] + value : value;
  }
}

void EncodeSignsHere(const MessageLayout& layout, const float* values, std::uint8_t* message) {
  const ReadAhead<Access::kRead> ahead(values, static_cast<std::size_t>(layout.count) * sizeof(float), kSearchDistance);
  for (std::int64_t index = 0; index < layout.blocks; ++index) {
    const BlockPlace<std::uint8_t> place = PlaceOf(layout, index, message);
    const auto count = static_cast<std::size_t>(place.elements);
    const double sum = SumOfMagnitudes(values + place.begin, count, ahead);
    float scale = static_cast<float>(sum / static_cast<double>(count));
    if (HWY_LIKELY(std::isfinite(sum) && sum != 0)) {
      PackSigns(values + place.begin, count, place.code);
    } else {
      if (sum != 0) scale = std::numeric_limits<float>::quiet_NaN();
      std::memset(place.code, 0, (count + 7) / 8);
    }
    std::memcpy(place.numbers, &scale, sizeof(scale));
  }
}

template <bool kAccumulate>
void DecodeAllSigns(const MessageLayout& layout, const std::uint8_t* message, float* values) {
  const ReadAhead<Access::kUpdate> ahead(values, static_cast<std::size_t>(layout.count) * sizeof(float),
                                         kUpdateDistance);
  for (std::int64_t index = 0; index < layout.blocks; ++index) {
    const BlockPlace<const std::uint8_t> place = PlaceOf(layout, index, message);
    float scale;
    std::memcpy(&scale, place.numbers, sizeof(scale));
    UnpackSigns<kAccumulate>(scale, place.code, static_cast<std::size_t>(place.elements), ahead, values + place.begin);
  }
}

void DecodeSignsHere(const MessageLayout& layout, const std::uint8_t* message, bool accumulate, float* values) {
  if (accumulate) return DecodeAllSigns<true>(layout, message, values);
  DecodeAllSigns<false>(layout, message, values);
}

}  // namespace tutti::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::kernels {
namespace {

HWY_EXPORT(EncodeSignsHere);
HWY_EXPORT(DecodeSignsHere);

}  // namespace

void EncodeSignBlocks(const MessageLayout& layout, const float* values, std::uint64_t /*draw*/, std::uint8_t* message) {
  HWY_DYNAMIC_DISPATCH(EncodeSignsHere)(layout, values, message);
}

void DecodeSignBlocks(const MessageLayout& layout, const std::uint8_t* message, bool accumulate, float* values) {
  HWY_DYNAMIC_DISPATCH(DecodeSignsHere)(layout, message, accumulate, values);
}

}  // namespace tutti::kernels
#endif  // HWY_ONCE
