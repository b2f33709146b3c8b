#include "kernels/finite_range.h"

#include "kernels/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/finite_range.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The minimum, maximum and largest magnitude per lane (as bits: NaN and infinity are the largest) of the values seen.
template <class D>
class LaneRange {
 public:
  LaneRange(D d, hn::Vec<D> first) : min_(first), max_(first), magnitude_(hn::Zero(DI())) { Add(d, first); }

  HWY_INLINE void Add(D, hn::Vec<D> v) {
    min_ = hn::Min(min_, v);
    max_ = hn::Max(max_, v);
    magnitude_ = hn::Max(magnitude_, hn::And(hn::BitCast(DI(), v), hn::Set(DI(), 0x7FFFFFFF)));
  }
  HWY_INLINE void Add(const LaneRange& other) {
    min_ = hn::Min(min_, other.min_);
    max_ = hn::Max(max_, other.max_);
    magnitude_ = hn::Max(magnitude_, other.magnitude_);
  }
  FiniteRange Combined(D d) const {
    const bool finite = hn::GetLane(hn::MaxOfLanes(DI(), magnitude_)) < 0x7F800000;
    return {finite, hn::GetLane(hn::MinOfLanes(d, min_)), hn::GetLane(hn::MaxOfLanes(d, max_))};
  }

 private:
  using DI = hn::RebindToSigned<D>;

  hn::Vec<D> min_;
  hn::Vec<D> max_;
  hn::Vec<DI> magnitude_;
};

FiniteRange FindRangeHere(const float* values, std::size_t count) {
  using Wide = hn::ScalableTag<float>;
  using Single = hn::CappedTag<float, 1>;
  const Wide d;
  const Single one;
  const std::size_t lanes = hn::Lanes(d);
  LaneRange<Single> tail(one, hn::LoadU(one, values));
  std::size_t i = 0;
  FiniteRange whole = tail.Combined(one);
  if (count >= 2 * lanes) {
    LaneRange<Wide> even(d, hn::LoadU(d, values));
    LaneRange<Wide> odd(d, hn::LoadU(d, values + lanes));
    for (; i + 2 * lanes <= count; i += 2 * lanes) {
      even.Add(d, hn::LoadU(d, values + i));
      odd.Add(d, hn::LoadU(d, values + i + lanes));
    }
    even.Add(odd);
    whole = even.Combined(d);
  }
  for (; i < count; ++i) tail.Add(one, hn::LoadU(one, values + i));
  const FiniteRange rest = tail.Combined(one);
  return {whole.finite && rest.finite, rest.min < whole.min ? rest.min : whole.min,
          rest.max > whole.max ? rest.max : whole.max};
}

}  // namespace tutti::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::kernels {

HWY_EXPORT(FindRangeHere);

FiniteRange FindRange(absl::Span<const float> values) {
  return HWY_DYNAMIC_DISPATCH(FindRangeHere)(values.data(), values.size());
}

}  // namespace tutti::kernels
#endif  // HWY_ONCE
