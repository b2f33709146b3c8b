// One element of each floating dtype: how it is loaded and stored, and the arithmetic of Reduce and Combine on it. The
// SIMD loops (floating_format-inl.h, reduce_floating-inl.h, combine.cc) give equal bits, but for the bits of a NaN that
// arithmetic makes, which differ between processors.
#ifndef TUTTI_KERNELS_FLOATING_ELEMENT_H_
#define TUTTI_KERNELS_FLOATING_ELEMENT_H_

#include <bit>
#include <cstdint>

#include "kernels/float16.h"
#include "kernels/host_device.h"
#include "tutti/dtype.h"

namespace tutti::kernels {

// A format has the Element that is stored, and the Lane in which it is computed.
template <typename T>
struct NativeElement {
  using Element = T;
  using Lane = T;
  TUTTI_HOST_DEVICE static Lane Load(Element element) { return element; }
  TUTTI_HOST_DEVICE static Element Store(Lane value) { return value; }
};

struct Float16Element {
  using Element = std::uint16_t;
  using Lane = float;
  TUTTI_HOST_DEVICE static Lane Load(Element element) { return FloatFromFloat16(element); }
  TUTTI_HOST_DEVICE static Element Store(Lane value) { return Float16FromFloat(value); }
};

struct BFloat16Element {
  using Element = std::uint16_t;
  using Lane = float;
  TUTTI_HOST_DEVICE static Lane Load(Element element) { return FloatFromBFloat16(element); }
  TUTTI_HOST_DEVICE static Element Store(Lane value) { return BFloat16FromFloat(value); }
};

constexpr bool IsFinite(float value) { return (std::bit_cast<std::uint32_t>(value) & 0x7F800000u) != 0x7F800000u; }
constexpr bool IsFinite(double value) {
  constexpr std::uint64_t kExponent = 0x7FF0000000000000u;
  return (std::bit_cast<std::uint64_t>(value) & kExponent) != kExponent;
}

// `a` and `b` combined by an operator of Reduce; the sum of an average is divided in the end.
template <typename Lane>
TUTTI_HOST_DEVICE Lane CombineFloating(ReduceOp op, Lane a, Lane b) {
  switch (op) {
    case ReduceOp::kMin:
      return a < b || a != a ? a : b;
    case ReduceOp::kMax:
      return a > b || a != a ? a : b;
    case ReduceOp::kProd:
      return a * b;
    default:
      return a + b;
  }
}

// Division by a small integer, as a multiplication where that rounds to the same result.
template <typename Lane>
class Quotients {
 public:
  Quotients() = default;
  explicit Quotients(std::int32_t divisor)
      : multiplies_((divisor & (divisor - 1)) == 0),
        number_(multiplies_ ? Lane{1} / static_cast<Lane>(divisor) : static_cast<Lane>(divisor)) {}

  TUTTI_HOST_DEVICE Lane Of(Lane value) const { return multiplies_ ? value * number_ : value / number_; }

 private:
  bool multiplies_ = true;
  Lane number_ = 1;
};

// A term of Combine. Dividing by 1 is exact, but slow.
template <typename Lane>
TUTTI_HOST_DEVICE Lane TermOf(Lane value, const Coefficient& coefficient) {
  value *= static_cast<Lane>(coefficient.factor);
  return coefficient.divisor == 1 ? value : value / static_cast<Lane>(coefficient.divisor);
}

}  // namespace tutti::kernels

#endif  // TUTTI_KERNELS_FLOATING_ELEMENT_H_
