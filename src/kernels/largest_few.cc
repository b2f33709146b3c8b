#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>

#include "kernels/highway_targets.h"
#include "kernels/select_largest.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/largest_few.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/read_ahead.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Appends the elements of a vector where `large` is true.
template <class D>
HWY_INLINE std::size_t Append(D d, hn::Vec<D> v, hn::Mask<D> large, std::size_t first, std::size_t count,
                              LargestFew& few) {
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
  const hn::RebindToUnsigned<D> du32;
  const auto index = hn::Add(hn::Iota(du32, 0u), hn::Set(du32, static_cast<std::uint32_t>(first)));
  hn::StoreU(hn::Compress(v, large), d, few.values + count);
  hn::StoreU(hn::Compress(index, hn::RebindMask(du32, large)), du32, few.indices + count);
  return count + hn::CountTrue(d, large);
#else
  // Few vectors have any. Where there is no instruction for it, to compress a vector takes longer than this.
  std::uint8_t bytes[8] = {};
  hn::StoreMaskBits(d, large, bytes);
  HWY_ALIGN float lanes[hn::MaxLanes(D())];
  std::uint32_t bits = bytes[0] | static_cast<std::uint32_t>(bytes[1]) << 8;
  if (bits != 0) hn::Store(v, d, lanes);
  for (; bits != 0; bits &= bits - 1) {
    const auto lane = static_cast<std::uint32_t>(std::countr_zero(bits));
    few.values[count] = lanes[lane];
    few.indices[count++] = static_cast<std::uint32_t>(first) + lane;
  }
  return count;
#endif
}

// Appends the elements [begin, end) of magnitude `least` and above, a vector at a time.
template <class D>
HWY_INLINE std::size_t AppendLarge(D d, const float* values, std::size_t begin, std::size_t end, std::int32_t least,
                                   std::size_t count, LargestFew& few) {
  const hn::RebindToSigned<D> di32;
  for (std::size_t i = begin; i < end; i += hn::Lanes(d)) {
    const auto v = hn::LoadU(d, values + i);
    const auto magnitude = hn::And(hn::BitCast(di32, v), hn::Set(di32, 0x7FFFFFFF));
    const auto large = hn::RebindMask(d, hn::Gt(magnitude, hn::Set(di32, least - 1)));
    count = Append(d, v, large, i, count, few);
  }
  return count;
}

// Appends all elements of magnitude `least` and above; returns how many, or more than kMax when they do not fit.
std::size_t AppendAllLarge(const float* values, std::size_t size, std::uint32_t least, LargestFew& few) {
  constexpr auto kMax = static_cast<std::size_t>(LargestFew::kMax);
  static_assert(kStride <= LargestFew::kSpare);
  const hn::CappedTag<float, 16> d;
  const hn::CappedTag<float, 1> one;
  const auto signed_least = static_cast<std::int32_t>(least);
  const ReadAhead<Access::kRead> ahead(values, size * sizeof(float), kSearchDistance);
  std::size_t count = 0;
  std::size_t i = 0;
  for (; i + kStride <= size && count <= kMax; i += kStride) {
    ahead.At<kStride * sizeof(float)>(values + i);
    count = AppendLarge(d, values, i, i + kStride, signed_least, count, few);
  }
  if (count > kMax) return count;
  return AppendLarge(one, values, i, size, signed_least, count, few);
}

// How many of the first `count` values, padded with zeros to whole vectors, have magnitude `least` > 0 or above.
HWY_INLINE std::size_t CountLarge(const float* values, std::size_t count, std::int32_t least) {
  const hn::CappedTag<std::int32_t, 16> d;
  const hn::Rebind<float, hn::CappedTag<std::int32_t, 16>> df32;
  auto sum = hn::Zero(d);
  for (std::size_t i = 0; i < count; i += hn::Lanes(d)) {
    const auto magnitude = hn::And(hn::BitCast(d, hn::LoadU(df32, values + i)), hn::Set(d, 0x7FFFFFFF));
    sum = hn::Sub(sum, hn::VecFromMask(d, hn::Gt(magnitude, hn::Set(d, least - 1))));
  }
  return static_cast<std::size_t>(hn::GetLane(hn::SumOfLanes(d, sum)));
}

// Leaves the `wanted` largest of `count` candidates.
void KeepLargest(std::size_t count, std::size_t wanted, LargestFew& few) {
  for (std::size_t i = count; i < count + kStride; ++i) few.values[i] = 0.0f;
  few.finite = CountLarge(few.values, count, 0x7F800000) == 0;
  if (!few.finite) return;
  // The magnitude of the least that is kept, from its highest bit to its lowest.
  std::int32_t least = 0;
  for (std::int32_t bit = 1 << 30; bit > 0; bit /= 2) {
    if (CountLarge(few.values, count, least | bit) >= wanted) least |= bit;
  }
  // Of those of exactly this magnitude only the first are kept.
  std::size_t ties = wanted - (least == 0x7FFFFFFF ? 0 : CountLarge(few.values, count, least + 1));
  std::size_t kept = 0;
  for (std::size_t i = 0; kept < wanted; ++i) {
    const auto magnitude = static_cast<std::int32_t>(MagnitudeOf(few.values[i]));
    few.values[kept] = few.values[i];
    few.indices[kept] = few.indices[i];
    const bool equal = magnitude == least;
    kept += static_cast<std::size_t>((magnitude > least) | (equal & (ties > 0)));
    ties -= static_cast<std::size_t>(equal & (ties > 0));
  }
}

}  // namespace tutti::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::kernels {
namespace {

HWY_EXPORT(AppendAllLarge);
HWY_EXPORT(KeepLargest);

constexpr std::int64_t kSampled = 1024;

// A magnitude that at least `wanted` of kSampled values, spread over all, reach: the exponent and the 3 bits after it
// of the smallest that do.
std::uint32_t MagnitudeOfSample(absl::Span<const float> values, std::int64_t wanted) {
  constexpr std::int64_t kTogether = 16;  // in one line of the cache
  constexpr int kShift = 20;
  std::array<std::uint16_t, std::size_t{1} << (31 - kShift)> bins = {};
  const std::int64_t step = static_cast<std::int64_t>(values.size()) / (kSampled / kTogether);
  std::uint32_t bin = 0;
  for (std::int64_t line = 0; line < kSampled / kTogether; ++line) {
    for (std::int64_t i = 0; i < kTogether; ++i) {
      const std::uint32_t of_value = MagnitudeOf(values[static_cast<std::size_t>(line * step + i)]) >> kShift;
      ++bins[of_value];
      bin = std::max(bin, of_value);
    }
  }
  for (std::int64_t reached = bins[bin]; reached < wanted && bin > 0;) reached += bins[--bin];
  return bin << kShift;
}

}  // namespace

bool FindLargestFew(absl::Span<const float> values, std::int64_t count, LargestFew& largest) {
  const auto size = static_cast<std::int64_t>(values.size());
  if (size < 4 * kSampled || size > std::int64_t{1} << 31) return false;
  // Of the `count` largest values the sample has `expected`, give or take four standard deviations.
  const double expected = static_cast<double>(count) * kSampled / static_cast<double>(size);
  const auto wanted = static_cast<std::int64_t>(expected + 4 * std::sqrt(expected) + 4);
  if (wanted * size > LargestFew::kMax * kSampled) return false;
  constexpr std::uint32_t kInfinity = 0x7F800000u;
  // What is not finite is among the candidates, and is found there.
  const std::uint32_t least = std::min(MagnitudeOfSample(values, wanted), kInfinity);
  const std::size_t candidates = HWY_DYNAMIC_DISPATCH(AppendAllLarge)(values.data(), values.size(), least, largest);
  if (candidates < static_cast<std::size_t>(count) || candidates > LargestFew::kMax) return false;
  HWY_DYNAMIC_DISPATCH(KeepLargest)(candidates, static_cast<std::size_t>(count), largest);
  return true;
}

}  // namespace tutti::kernels
#endif  // HWY_ONCE
