// Encodes and decodes the blocks of the messages of uint8_block, uint4_block and minmax_uint8 (the coders kGrid8,
// kGrid4, kRotatedGrid4 and kMinMax8 of a MessageLayout) in host memory, equal bit for bit to the element functions of
// grid.h and minmax_levels.h. Thread-safe, allocate nothing.
#ifndef TUTTI_KERNELS_RANGE_BLOCKS_H_
#define TUTTI_KERNELS_RANGE_BLOCKS_H_

#include <cstdint>

#include "kernels/message_layout.h"

namespace tutti::kernels {

// Writes the numbers and the code of every block of layout.count elements at `values` into `message`.
void EncodeRangeBlocks(const MessageLayout& layout, const float* values, std::uint64_t draw, std::uint8_t* message);

// Sets layout.count elements at `values` to what the blocks of `message` decode to, or adds it.
void DecodeRangeBlocks(const MessageLayout& layout, const std::uint8_t* message, bool accumulate, float* values);

}  // namespace tutti::kernels

#endif  // TUTTI_KERNELS_RANGE_BLOCKS_H_
