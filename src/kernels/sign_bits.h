// Packing of one bit per element: the inner loops of the codec `sign`. Thread-safe, allocate nothing.
#ifndef TUTTI_KERNELS_SIGN_BITS_H_
#define TUTTI_KERNELS_SIGN_BITS_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"

namespace tutti::kernels {

// The number of partial sums of SumOfMagnitudes.
inline constexpr int kPartialSums = 16;

// Σ |value| in double: kPartialSums partial sums, each of every kPartialSums-th element, whose upper half is added to
// the lower half until one is left. NaN or Inf when a value is.
double SumOfMagnitudes(absl::Span<const float> values);

// Whether element `index` is sent as negative. A zero at an odd index is sent as negative, so that the zeros of a block
// cancel out.
constexpr bool IsSentNegative(float value, std::size_t index) { return value < 0 || (value == 0 && index % 2 != 0); }

// Sets bit i % 8 of bits[i / 8] to IsSentNegative(values[i], i), and the bits after the last element to 0. `bits` has
// (values.size() + 7) / 8 bytes.
void PackSigns(absl::Span<const float> values, std::uint8_t* bits);
// Sets values[i] to +scale or -scale, as its bit says, or with `accumulate` adds this number to values[i].
void UnpackSigns(float scale, const std::uint8_t* bits, bool accumulate, absl::Span<float> values);

}  // namespace tutti::kernels

#endif  // TUTTI_KERNELS_SIGN_BITS_H_
