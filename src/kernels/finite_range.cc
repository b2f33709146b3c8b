#include "tutti/codecs/finite_range.h"

#include "kernels/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/finite_range.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/finite_range-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::kernels::HWY_NAMESPACE {

FiniteRange FindRangeHere(const float* values, std::size_t count) { return RangeOf(values, count, NothingAhead()); }

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
