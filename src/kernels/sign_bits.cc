#include "kernels/sign_bits.h"

#include <cmath>

#include "kernels/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/sign_bits.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

double SumHere(const float* values, std::size_t count) {
  constexpr std::size_t kSums = kPartialSums;
  const hn::CappedTag<double, kSums> d;
  const hn::Rebind<float, decltype(d)> df32;
  HWY_ALIGN double sums[kSums] = {};
  std::size_t i = 0;
  for (; i + kSums <= count; i += kSums) {
    for (std::size_t k = 0; k < kSums; k += hn::Lanes(d)) {
      const auto magnitude = hn::Abs(hn::PromoteTo(d, hn::LoadU(df32, values + i + k)));
      hn::Store(hn::Add(hn::Load(d, sums + k), magnitude), d, sums + k);
    }
  }
  for (std::size_t k = 0; i < count; ++i, ++k) sums[k] += static_cast<double>(std::fabs(values[i]));
  for (std::size_t half = kSums / 2; half > 0; half /= 2) {
    for (std::size_t k = 0; k < half; ++k) sums[k] += sums[k + half];
  }
  return sums[0];
}

void PackHere(const float* values, std::size_t count, std::uint8_t* bits) {
  const hn::CappedTag<float, 8> d;
  const hn::RebindToUnsigned<decltype(d)> du32;
  const std::size_t lanes = hn::Lanes(d);
  const auto at_odd = hn::RebindMask(d, hn::TestBit(hn::Iota(du32, 0u), hn::Set(du32, 1u)));
  std::size_t i = 0;
  for (; i + 8 <= count && lanes > 1; i += 8) {
    std::uint32_t byte = 0;
    for (std::size_t k = 0; k < 8; k += lanes) {
      const auto v = hn::LoadU(d, values + i + k);
      const auto zero = hn::And(hn::Eq(v, hn::Zero(d)), at_odd);
      std::uint8_t part[8] = {};
      hn::StoreMaskBits(d, hn::Or(hn::Lt(v, hn::Zero(d)), zero), part);
      byte |= static_cast<std::uint32_t>(part[0]) << k;
    }
    bits[i / 8] = static_cast<std::uint8_t>(byte);
  }
  for (; i < count; i += 8) {
    std::uint32_t byte = 0;
    for (std::size_t k = 0; k < 8 && i + k < count; ++k) {
      byte |= static_cast<std::uint32_t>(IsSentNegative(values[i + k], k)) << k;
    }
    bits[i / 8] = static_cast<std::uint8_t>(byte);
  }
}

template <bool kAccumulate>
void UnpackAll(float scale, const std::uint8_t* bits, std::size_t count, float* values) {
  const hn::CappedTag<float, 8> d;
  const hn::RebindToUnsigned<decltype(d)> du32;
  const std::size_t lanes = hn::Lanes(d);
  alignas(32) static constexpr std::uint32_t kBits[8] = {1, 2, 4, 8, 16, 32, 64, 128};
  const auto positive = hn::Set(d, scale);
  const auto negative = hn::Set(d, -scale);
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const auto byte = hn::Set(du32, static_cast<std::uint32_t>(bits[i / 8]));
    for (std::size_t k = 0; k < 8; k += lanes) {
      const auto is_negative = hn::RebindMask(d, hn::TestBit(byte, hn::Load(du32, kBits + k)));
      auto v = hn::IfThenElse(is_negative, negative, positive);
      if constexpr (kAccumulate) v = hn::Add(hn::LoadU(d, values + i + k), v);
      hn::StoreU(v, d, values + i + k);
    }
  }
  for (; i < count; ++i) {
    const float value = bits[i / 8] >> (i % 8) & 1 ? -scale : scale;
    values[i] = kAccumulate ? values[i] + value : value;
  }
}

void UnpackHere(float scale, const std::uint8_t* bits, std::size_t count, bool accumulate, float* values) {
  if (accumulate) return UnpackAll<true>(scale, bits, count, values);
  UnpackAll<false>(scale, bits, count, values);
}

}  // namespace tutti::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::kernels {

HWY_EXPORT(SumHere);
HWY_EXPORT(PackHere);
HWY_EXPORT(UnpackHere);

double SumOfMagnitudes(absl::Span<const float> values) {
  return HWY_DYNAMIC_DISPATCH(SumHere)(values.data(), values.size());
}

void PackSigns(absl::Span<const float> values, std::uint8_t* bits) {
  HWY_DYNAMIC_DISPATCH(PackHere)(values.data(), values.size(), bits);
}

void UnpackSigns(float scale, const std::uint8_t* bits, bool accumulate, absl::Span<float> values) {
  HWY_DYNAMIC_DISPATCH(UnpackHere)(scale, bits, values.size(), accumulate, values.data());
}

}  // namespace tutti::kernels
#endif  // HWY_ONCE
