// Quotients and multiples that are rounded up, and the length of a cache line, at which memory that ranks share is cut.
#ifndef TUTTI_ROUNDING_H_
#define TUTTI_ROUNDING_H_

#include <concepts>
#include <cstdint>
#include <type_traits>

namespace tutti {

// Two ranks that write to one line of 64 bytes wait for each other.
inline constexpr std::int64_t kCacheLineBytes = 64;

// The least integer that is not less than dividend / divisor, for a dividend of at least 0 and a divisor of at least 1.
template <std::integral T>
constexpr T DivideRoundingUp(T dividend, std::type_identity_t<T> divisor) {
  return (dividend + divisor - 1) / divisor;
}

// The least multiple of `unit`, at least 1, that is not less than `value`, at least 0.
template <std::integral T>
constexpr T RoundUp(T value, std::type_identity_t<T> unit) {
  return DivideRoundingUp(value, unit) * unit;
}

}  // namespace tutti

#endif  // TUTTI_ROUNDING_H_
