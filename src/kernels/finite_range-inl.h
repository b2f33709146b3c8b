// The range of a block of fp32 values, on vectors. Included once per instruction set.
#if defined(TUTTI_KERNELS_FINITE_RANGE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TUTTI_KERNELS_FINITE_RANGE_INL_H_
#undef TUTTI_KERNELS_FINITE_RANGE_INL_H_
#else
#define TUTTI_KERNELS_FINITE_RANGE_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "kernels/read_ahead.h"
#include "tutti/codecs/finite_range.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The lanes in which `a` or `b` is NaN.
template <class D>
HWY_INLINE hn::Mask<D> IsEitherNaN(D, hn::Vec<D> a, hn::Vec<D> b) {
#if HWY_TARGET == HWY_AVX2
  if constexpr (sizeof(a) == 32) return hn::Mask<D>{_mm256_cmp_ps(a.raw, b.raw, _CMP_UNORD_Q)};
#endif
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  if constexpr (sizeof(a) == 64) return hn::Mask<D>{_mm512_cmp_ps_mask(a.raw, b.raw, _CMP_UNORD_Q)};
#endif
  return hn::Or(hn::IsNaN(a), hn::IsNaN(b));
}

// The minimum and maximum per lane of the values seen; undefined where one of them was NaN.
template <class D>
struct Extremes {
  explicit HWY_INLINE Extremes(hn::Vec<D> first) : min(first), max(first) {}

  HWY_INLINE void Add(hn::Vec<D> v) {
    min = hn::Min(min, v);
    max = hn::Max(max, v);
  }
  HWY_INLINE void Add(const Extremes& other) {
    min = hn::Min(min, other.min);
    max = hn::Max(max, other.max);
  }

  hn::Vec<D> min;
  hn::Vec<D> max;
};

// The range of all lanes. `has_nan`: the lanes in which a value was NaN. Infinite values are seen in the extremes.
template <class D>
HWY_INLINE FiniteRange Combined(D d, const Extremes<D>& extremes, hn::Mask<D> has_nan) {
  const float min = hn::GetLane(hn::MinOfLanes(d, extremes.min));
  const float max = hn::GetLane(hn::MaxOfLanes(d, extremes.max));
  constexpr float kLargest = std::numeric_limits<float>::max();
  return {hn::AllFalse(d, has_nan) && min >= -kLargest && max <= kLargest, min, max};
}

// Loads a vector into a register. g++ would otherwise load the vector again for each of the operations on it, and each
// load would wait for the memory by itself.
template <class D>
HWY_INLINE hn::Vec<D> LoadOnce(D d, const float* from) {
  auto v = hn::LoadU(d, from);
#if HWY_ARCH_X86 && HWY_COMPILER_GCC_ACTUAL
  asm("" : "+v"(v.raw));
#endif
  return v;
}

// The range of values that are taken four vectors at a time.
template <class D>
class FourRanges {
 public:
  HWY_INLINE FourRanges(D d, const float* values)
      : range0_(LoadOnce(d, values)),
        range1_(LoadOnce(d, values + hn::Lanes(d))),
        range2_(LoadOnce(d, values + 2 * hn::Lanes(d))),
        range3_(LoadOnce(d, values + 3 * hn::Lanes(d))),
        has_nan_(hn::MaskFromVec(hn::Zero(d))) {}
  HWY_INLINE void Add(D d, const float* values) {
    const auto v0 = LoadOnce(d, values);
    const auto v1 = LoadOnce(d, values + hn::Lanes(d));
    const auto v2 = LoadOnce(d, values + 2 * hn::Lanes(d));
    const auto v3 = LoadOnce(d, values + 3 * hn::Lanes(d));
    range0_.Add(v0);
    range1_.Add(v1);
    range2_.Add(v2);
    range3_.Add(v3);
    has_nan_ = hn::Or(has_nan_, hn::Or(IsEitherNaN(d, v0, v1), IsEitherNaN(d, v2, v3)));
  }
  HWY_INLINE FiniteRange Result(D d) {
    range0_.Add(range1_);
    range2_.Add(range3_);
    range0_.Add(range2_);
    return Combined(d, range0_, has_nan_);
  }

 private:
  Extremes<D> range0_, range1_, range2_, range3_;
  hn::Mask<D> has_nan_;
};

// The range of values[0, count), count ≥ 1. `ahead` prefetches the first half of each stride; the second is left to
// what goes through the values next, so that memory is busy meanwhile, too.
template <class Ahead>
HWY_INLINE FiniteRange RangeOf(const float* values, std::size_t count, const Ahead& ahead) {
  const hn::CappedTag<float, 16> d;
  const std::size_t four = 4 * hn::Lanes(d);
  if (count < kStride) {
    const hn::CappedTag<float, 1> one;
    Extremes<hn::CappedTag<float, 1>> extremes(hn::LoadU(one, values));
    auto has_nan = hn::IsNaN(extremes.min);
    for (std::size_t i = 1; i < count; ++i) {
      const auto v = hn::LoadU(one, values + i);
      extremes.Add(v);
      has_nan = hn::Or(has_nan, hn::IsNaN(v));
    }
    return Combined(one, extremes, has_nan);
  }
  FourRanges<hn::CappedTag<float, 16>> ranges(d, values);
  std::size_t i = 0;
  for (; i + kStride <= count; i += kStride) {
    ahead.template At<kHalfStrideBytes>(values + i);
    for (std::size_t k = 0; k < kStride; k += four) ranges.Add(d, values + i + k);
  }
  // The last values are seen twice where they are no whole stride, which changes no range.
  if (i < count) {
    for (std::size_t k = 0; k < kStride; k += four) ranges.Add(d, values + count - kStride + k);
  }
  return ranges.Result(d);
}

}  // namespace tutti::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TUTTI_KERNELS_FINITE_RANGE_INL_H_
