// Encodes and decodes the messages of bf16 and fp16 (the coders kBF16 and kF16 of a MessageLayout) in host memory,
// equal bit for bit to the element functions of float16.h and stochastic_cast.h. Messages need no alignment.
// Thread-safe, allocate nothing.
#ifndef TUTTI_KERNELS_CAST_BLOCKS_H_
#define TUTTI_KERNELS_CAST_BLOCKS_H_

#include <cstdint>

#include "kernels/message_layout.h"

namespace tutti::kernels {

// Rounds layout.count elements at `values` into `message`.
void EncodeCastBlocks(const MessageLayout& layout, const float* values, std::uint64_t draw, std::uint8_t* message);

// Sets layout.count elements at `values` to those of `message`, or adds these.
void DecodeCastBlocks(const MessageLayout& layout, const std::uint8_t* message, bool accumulate, float* values);

}  // namespace tutti::kernels

#endif  // TUTTI_KERNELS_CAST_BLOCKS_H_
