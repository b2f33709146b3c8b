#include "kernels/combine.h"

#include <cstddef>

#include "kernels/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/combine.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/floating_format-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::kernels::HWY_NAMESPACE {

// The vector times the coefficient. Multiplying by 1 is exact; dividing by 1 is exact too, but slow, and left out.
template <class D>
HWY_INLINE hn::Vec<D> Term(D d, hn::Vec<D> v, const Coefficient& coefficient) {
  using Lane = hn::TFromD<D>;
  v = hn::Mul(v, hn::Set(d, static_cast<Lane>(coefficient.factor)));
  if (coefficient.divisor == 1) return v;
  return hn::Div(v, hn::Set(d, static_cast<Lane>(coefficient.divisor)));
}

// Combines whole vectors of `d` in [begin, count); returns where it stopped.
template <class Format, bool kFinite, class D>
HWY_INLINE std::size_t CombineVectors(D d, void* dst, absl::Span<const void* const> srcs,
                                      const Coefficient* coefficients, std::size_t begin, std::size_t count) {
  using Element = typename Format::Element;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = begin;
  for (; i + lanes <= count; i += lanes) {
    auto sum = Term(d, Format::Load(d, static_cast<const Element*>(srcs[0]) + i), coefficients[0]);
    for (std::size_t s = 1; s < srcs.size(); ++s) {
      sum = hn::Add(sum, Term(d, Format::Load(d, static_cast<const Element*>(srcs[s]) + i), coefficients[s]));
    }
    if constexpr (kFinite) sum = hn::IfThenElseZero(hn::IsFinite(sum), sum);
    Format::template Store<false>(d, sum, static_cast<Element*>(dst) + i);
  }
  return i;
}

template <class Format, bool kFinite>
void CombineAll(void* dst, absl::Span<const void* const> srcs, const Coefficient* coefficients, std::size_t count) {
  const hn::ScalableTag<typename Format::Lane> d;
  const hn::CappedTag<typename Format::Lane, 1> one;
  const std::size_t done = CombineVectors<Format, kFinite>(d, dst, srcs, coefficients, 0, count);
  CombineVectors<Format, kFinite>(one, dst, srcs, coefficients, done, count);
}

template <class Format>
void CombineFormat(void* dst, absl::Span<const void* const> srcs, const Coefficient* coefficients, std::size_t count,
                   Results results) {
  if (results == Results::kFinite) return CombineAll<Format, true>(dst, srcs, coefficients, count);
  CombineAll<Format, false>(dst, srcs, coefficients, count);
}

void CombineHere(DType dtype, void* dst, absl::Span<const void* const> srcs, const Coefficient* coefficients,
                 std::size_t count, Results results) {
  if (dtype == DType::kF32) return CombineFormat<NativeFormat<float>>(dst, srcs, coefficients, count, results);
  if (dtype == DType::kF64) return CombineFormat<NativeFormat<double>>(dst, srcs, coefficients, count, results);
  if (dtype == DType::kF16) return CombineFormat<Float16Format>(dst, srcs, coefficients, count, results);
  CombineFormat<BFloat16Format>(dst, srcs, coefficients, count, results);
}

}  // namespace tutti::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::kernels {

HWY_EXPORT(CombineHere);

void Combine(DType dtype, void* dst, absl::Span<const void* const> srcs, const Coefficient* coefficients,
             std::int64_t count, Results results) {
  HWY_DYNAMIC_DISPATCH(CombineHere)(dtype, dst, srcs, coefficients, static_cast<std::size_t>(count), results);
}

}  // namespace tutti::kernels
#endif  // HWY_ONCE
