// One bit per element and the mean magnitude of each block: the messages of `sign` (the coder kSign of a MessageLayout)
// in host memory. Thread-safe, allocate nothing.
#ifndef TUTTI_KERNELS_SIGN_BITS_H_
#define TUTTI_KERNELS_SIGN_BITS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/message_layout.h"

namespace tutti::kernels {

// Σ |value| of a block is made in double, of this many partial sums: each of every kPartialSums-th element. The upper
// half of the sums is added to the lower half until one is left.
inline constexpr int kPartialSums = 16;

// Whether element `index` is sent as negative. A zero at an odd index is sent as negative, so that the zeros of a block
// cancel out.
constexpr bool IsSentNegative(float value, std::size_t index) { return value < 0 || (value == 0 && index % 2 != 0); }

// Writes the mean magnitude and the signs of every block of layout.count elements at `values` into `message`: bit i % 8
// of byte i / 8 says whether element i of the block is sent as negative; the bits after the last element are 0. A block
// with a NaN or Inf has NaN for its mean, and it and a block of zeros have no bit set.
void EncodeSignBlocks(const MessageLayout& layout, const float* values, std::uint64_t draw, std::uint8_t* message);

// Sets layout.count elements at `values` to + or − the mean of their block, as their bits say, or adds this number.
void DecodeSignBlocks(const MessageLayout& layout, const std::uint8_t* message, bool accumulate, float* values);

}  // namespace tutti::kernels

#endif  // TUTTI_KERNELS_SIGN_BITS_H_
