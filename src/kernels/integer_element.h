// The arithmetic of Reduce on one element of an integer type.
#ifndef TUTTI_KERNELS_INTEGER_ELEMENT_H_
#define TUTTI_KERNELS_INTEGER_ELEMENT_H_

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/host_device.h"
#include "tutti/dtype.h"

namespace tutti::kernels {

// `a` and `b` combined by the operator of Reduce; sums, averages (which are divided in the end) and products wrap
// around.
template <ReduceOp kOp, typename T>
TUTTI_HOST_DEVICE T CombineIntegers(T a, T b) {
  // Unsigned arithmetic wraps around; that of 64 bits also for narrow operands, which would be promoted to (signed)
  // int.
  using Wide = std::uint64_t;
  if constexpr (kOp == ReduceOp::kMin) {
    return std::min(a, b);
  } else if constexpr (kOp == ReduceOp::kMax) {
    return std::max(a, b);
  } else if constexpr (kOp == ReduceOp::kProd) {
    return static_cast<T>(static_cast<Wide>(a) * static_cast<Wide>(b));
  } else {
    return static_cast<T>(static_cast<Wide>(a) + static_cast<Wide>(b));
  }
}

template <typename T>
TUTTI_HOST_DEVICE T Quotient(T dividend, std::int32_t divisor) {
  if constexpr (std::is_signed_v<T>) {
    return static_cast<T>(std::int64_t{dividend} / divisor);
  } else {
    return static_cast<T>(std::uint64_t{dividend} / static_cast<std::uint64_t>(divisor));
  }
}

}  // namespace tutti::kernels

#endif  // TUTTI_KERNELS_INTEGER_ELEMENT_H_
