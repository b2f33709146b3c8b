#include "kernels/reduce_complex.h"

#include <cstddef>

#include "kernels/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/reduce_complex.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Multiplies pairs of parts. Vectors and the scalar rest make the same IEEE operations in the same order, so the bits
// of a product do not depend on the instruction set or on the place of the element.
template <typename Part>
void MultiplyPairs(absl::Span<void* const> dsts, absl::Span<const void* const> srcs, std::size_t count) {
  const hn::ScalableTag<Part> d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    auto real = hn::Zero(d);
    auto imaginary = real;
    hn::LoadInterleaved2(d, static_cast<const Part*>(srcs[0]) + 2 * i, real, imaginary);
    for (const void* operand : srcs.subspan(1)) {
      auto c = hn::Zero(d);
      auto e = c;
      hn::LoadInterleaved2(d, static_cast<const Part*>(operand) + 2 * i, c, e);
      const auto product = hn::Sub(hn::Mul(real, c), hn::Mul(imaginary, e));
      imaginary = hn::Add(hn::Mul(real, e), hn::Mul(imaginary, c));
      real = product;
    }
    for (void* dst : dsts) hn::StoreInterleaved2(real, imaginary, d, static_cast<Part*>(dst) + 2 * i);
  }
  for (; i < count; ++i) {
    Part real = static_cast<const Part*>(srcs[0])[2 * i];
    Part imaginary = static_cast<const Part*>(srcs[0])[2 * i + 1];
    for (const void* operand : srcs.subspan(1)) {
      const Part c = static_cast<const Part*>(operand)[2 * i];
      const Part e = static_cast<const Part*>(operand)[2 * i + 1];
      const Part product = real * c - imaginary * e;
      imaginary = real * e + imaginary * c;
      real = product;
    }
    for (void* dst : dsts) {
      static_cast<Part*>(dst)[2 * i] = real;
      static_cast<Part*>(dst)[2 * i + 1] = imaginary;
    }
  }
}

void MultiplyComplexHere(DType dtype, absl::Span<void* const> dsts, absl::Span<const void* const> srcs,
                         std::size_t count) {
  if (dtype == DType::kC64) return MultiplyPairs<float>(dsts, srcs, count);
  MultiplyPairs<double>(dsts, srcs, count);
}

}  // namespace tutti::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::kernels {

HWY_EXPORT(MultiplyComplexHere);

void MultiplyComplex(DType dtype, absl::Span<void* const> dsts, absl::Span<const void* const> srcs,
                     std::int64_t count) {
  HWY_DYNAMIC_DISPATCH(MultiplyComplexHere)(dtype, dsts, srcs, static_cast<std::size_t>(count));
}

}  // namespace tutti::kernels
#endif  // HWY_ONCE
