// The range of a block of fp32 values, on vectors. Included once per instruction set.
#if defined(TUTTI_KERNELS_FINITE_RANGE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TUTTI_KERNELS_FINITE_RANGE_INL_H_
#undef TUTTI_KERNELS_FINITE_RANGE_INL_H_
#else
#define TUTTI_KERNELS_FINITE_RANGE_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/read_ahead.h"
#include "tutti/codecs/finite_range.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The minimum, maximum and largest magnitude per lane (as bits: NaN and infinity are the largest) of the values seen.
template <class D>
class LaneRange {
 public:
  HWY_INLINE LaneRange(D d, hn::Vec<D> first) : min_(first), max_(first), magnitude_(Magnitude(d, first)) {}

  HWY_INLINE void Add(D d, hn::Vec<D> v) {
    min_ = hn::Min(min_, v);
    max_ = hn::Max(max_, v);
    magnitude_ = hn::Max(magnitude_, Magnitude(d, v));
  }
  HWY_INLINE void Add(const LaneRange& other) {
    min_ = hn::Min(min_, other.min_);
    max_ = hn::Max(max_, other.max_);
    magnitude_ = hn::Max(magnitude_, other.magnitude_);
  }
  HWY_INLINE FiniteRange Combined(D d) const {
    const bool finite = hn::GetLane(hn::MaxOfLanes(DI(), magnitude_)) < 0x7F800000;
    return {finite, hn::GetLane(hn::MinOfLanes(d, min_)), hn::GetLane(hn::MaxOfLanes(d, max_))};
  }

 private:
  using DI = hn::RebindToSigned<D>;
  static HWY_INLINE hn::Vec<DI> Magnitude(D, hn::Vec<D> v) {
    return hn::And(hn::BitCast(DI(), v), hn::Set(DI(), 0x7FFFFFFF));
  }

  hn::Vec<D> min_;
  hn::Vec<D> max_;
  hn::Vec<DI> magnitude_;
};

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

template <class D>
struct FourRanges {
  HWY_INLINE FourRanges(D d, const float* values)
      : range0(d, LoadOnce(d, values)),
        range1(d, LoadOnce(d, values + hn::Lanes(d))),
        range2(d, LoadOnce(d, values + 2 * hn::Lanes(d))),
        range3(d, LoadOnce(d, values + 3 * hn::Lanes(d))) {}
  HWY_INLINE void Add(D d, const float* values) {
    range0.Add(d, LoadOnce(d, values));
    range1.Add(d, LoadOnce(d, values + hn::Lanes(d)));
    range2.Add(d, LoadOnce(d, values + 2 * hn::Lanes(d)));
    range3.Add(d, LoadOnce(d, values + 3 * hn::Lanes(d)));
  }
  HWY_INLINE FiniteRange Combined(D d) {
    range0.Add(range1);
    range2.Add(range3);
    range0.Add(range2);
    return range0.Combined(d);
  }

  LaneRange<D> range0, range1, range2, range3;
};

// The range of values[0, count), count ≥ 1. `ahead` prefetches the first half of each stride; the second is left to
// what goes through the values next, so that memory is busy meanwhile, too.
template <class Ahead>
HWY_INLINE FiniteRange RangeOf(const float* values, std::size_t count, const Ahead& ahead) {
  const hn::CappedTag<float, 16> d;
  const std::size_t four = 4 * hn::Lanes(d);
  if (count < kStride) {
    const hn::CappedTag<float, 1> one;
    LaneRange<hn::CappedTag<float, 1>> range(one, hn::LoadU(one, values));
    for (std::size_t i = 1; i < count; ++i) range.Add(one, hn::LoadU(one, values + i));
    return range.Combined(one);
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
  return ranges.Combined(d);
}

}  // namespace tutti::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TUTTI_KERNELS_FINITE_RANGE_INL_H_
