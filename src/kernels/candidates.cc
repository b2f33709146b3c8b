#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>

#include "kernels/highway_targets.h"
#include "kernels/select_largest.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/candidates.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/read_ahead.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Appends the elements [begin, end) of magnitude `least` and above, a vector at a time, each as a value and an index.
template <class D>
HWY_INLINE std::size_t AppendLarge(D d, const float* values, std::size_t begin, std::size_t end, std::int32_t least,
                                   std::size_t count, Candidates& candidates) {
  const hn::RebindToSigned<D> di32;
  const hn::RebindToUnsigned<D> du32;
  for (std::size_t i = begin; i < end; i += hn::Lanes(d)) {
    const auto v = hn::LoadU(d, values + i);
    const auto magnitude = hn::And(hn::BitCast(di32, v), hn::Set(di32, 0x7FFFFFFF));
    const auto large = hn::Gt(magnitude, hn::Set(di32, least - 1));
    const auto index = hn::Add(hn::Iota(du32, 0u), hn::Set(du32, static_cast<std::uint32_t>(i)));
    hn::StoreU(hn::Compress(v, hn::RebindMask(d, large)), d, candidates.values + count);
    hn::StoreU(hn::Compress(index, hn::RebindMask(du32, large)), du32, candidates.indices + count);
    count += hn::CountTrue(di32, large);
  }
  return count;
}

// Appends all elements of magnitude `least` and above; returns how many, or more than kMost when they do not fit.
std::size_t AppendAllLarge(const float* values, std::size_t size, std::uint32_t least, Candidates& candidates) {
  constexpr std::size_t kStride = 64;
  constexpr auto kMost = static_cast<std::size_t>(Candidates::kMost);
  static_assert(kStride <= Candidates::kSpare);
  const hn::CappedTag<float, 16> d;
  const hn::CappedTag<float, 1> one;
  const auto signed_least = static_cast<std::int32_t>(least);
  const ReadAhead<Access::kRead> ahead(values, size * sizeof(float), kReadDistance);
  std::size_t count = 0;
  std::size_t i = 0;
  for (; i + kStride <= size && count <= kMost; i += kStride) {
    ahead.At<kStride * sizeof(float)>(values + i);
    count = AppendLarge(d, values, i, i + kStride, signed_least, count, candidates);
  }
  if (count > kMost) return count;
  return AppendLarge(one, values, i, size, signed_least, count, candidates);
}

}  // namespace tutti::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::kernels {
namespace {

HWY_EXPORT(AppendAllLarge);

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

bool FindCandidates(absl::Span<const float> values, std::int64_t count, Candidates& candidates) {
  const auto size = static_cast<std::int64_t>(values.size());
  if (size < 4 * kSampled || size > std::int64_t{1} << 31) return false;
  // Of the `count` largest values the sample has `expected`, give or take four standard deviations.
  const double expected = static_cast<double>(count) * kSampled / static_cast<double>(size);
  const auto wanted = static_cast<std::int64_t>(expected + 4 * std::sqrt(expected) + 4);
  if (wanted * size > Candidates::kMost * kSampled) return false;
  constexpr std::uint32_t kInfinity = 0x7F800000u;
  const std::uint32_t least = std::min(MagnitudeOfSample(values, wanted), kInfinity);
  const std::size_t found = HWY_DYNAMIC_DISPATCH(AppendAllLarge)(values.data(), values.size(), least, candidates);
  candidates.count = static_cast<std::int64_t>(found);
  return candidates.count >= count && candidates.count <= Candidates::kMost;
}

}  // namespace tutti::kernels
#endif  // HWY_ONCE
