// The conversion of one element between any two real dtypes: the arithmetic of Convert.
#ifndef TUTTI_KERNELS_CONVERT_ELEMENT_H_
#define TUTTI_KERNELS_CONVERT_ELEMENT_H_

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include "kernels/float16.h"
#include "kernels/host_device.h"

namespace tutti::kernels {

struct Float16 {
  std::uint16_t bits;
};
struct BFloat16 {
  std::uint16_t bits;
};

template <typename T>
constexpr bool kIs16BitFloat = std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>;

// `value` as an fp32 that, unless exact, is rounded toward zero and has its last bit set ("round to odd"), so that
// rounding the fp32 again to 16 bits gives the right result.
TUTTI_HOST_DEVICE inline float RoundToOdd(double value) {
  const float nearest = static_cast<float>(value);
  if (!std::isfinite(value) || static_cast<double>(nearest) == value) return nearest;
  const bool away = std::abs(static_cast<double>(nearest)) > std::abs(value);
  const float truncated = away ? std::nextafter(nearest, 0.0f) : nearest;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(truncated) | 1u);
}

TUTTI_HOST_DEVICE inline double RoundToOdd(std::int64_t value) {
  constexpr std::int64_t kLowBits = (1 << 11) - 1;  // at most these bits do not fit into the 53 bits of a double
  if (value >> 53 == 0 || value >> 53 == -1) return static_cast<double>(value);
  const std::int64_t sticky = (value & kLowBits) != 0 ? kLowBits + 1 : 0;
  return static_cast<double>((value & ~kLowBits) | sticky);
}

TUTTI_HOST_DEVICE inline double RoundToOdd(std::uint64_t value) {
  constexpr std::uint64_t kLowBits = (1 << 11) - 1;
  if (value >> 53 == 0) return static_cast<double>(value);
  const std::uint64_t sticky = (value & kLowBits) != 0 ? kLowBits + 1 : 0;
  return static_cast<double>((value & ~kLowBits) | sticky);
}

// `value` as a double (exact but for large 64-bit integers, which are rounded to odd).
template <typename From>
TUTTI_HOST_DEVICE double Widen(From value) {
  if constexpr (std::is_same_v<From, Float16>) {
    return static_cast<double>(FloatFromFloat16(value.bits));
  } else if constexpr (std::is_same_v<From, BFloat16>) {
    return static_cast<double>(FloatFromBFloat16(value.bits));
  } else if constexpr (std::is_same_v<From, std::int64_t> || std::is_same_v<From, std::uint64_t>) {
    return RoundToOdd(value);
  } else {
    return static_cast<double>(value);
  }
}

// `value` converted to nearest even; a float that does not fit into an integer saturates, and NaN becomes 0.
template <typename To, typename From>
TUTTI_HOST_DEVICE To ConvertElement(From value) {
  if constexpr (std::is_same_v<To, Float16>) {
    return {Float16FromFloat(RoundToOdd(Widen(value)))};
  } else if constexpr (std::is_same_v<To, BFloat16>) {
    return {BFloat16FromFloat(RoundToOdd(Widen(value)))};
  } else if constexpr (std::is_integral_v<To> && std::is_integral_v<From>) {
    using Limits = std::numeric_limits<To>;
    if (std::cmp_less(value, Limits::min())) return Limits::min();
    return std::cmp_greater(value, Limits::max()) ? Limits::max() : static_cast<To>(value);
  } else if constexpr (std::is_integral_v<To>) {
    const double rounded = std::nearbyint(Widen(value));
    // The upper limit is a power of two, because the largest 64-bit integers are no doubles.
    const double limit = std::ldexp(1.0, std::numeric_limits<To>::digits);
    if (std::isnan(rounded)) return 0;
    if (rounded >= limit) return std::numeric_limits<To>::max();
    if (rounded < static_cast<double>(std::numeric_limits<To>::min())) return std::numeric_limits<To>::min();
    return static_cast<To>(rounded);
  } else if constexpr (kIs16BitFloat<From>) {
    return static_cast<To>(Widen(value));
  } else {
    return static_cast<To>(value);
  }
}

}  // namespace tutti::kernels

#endif  // TUTTI_KERNELS_CONVERT_ELEMENT_H_
