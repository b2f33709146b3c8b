// Where the parts of an encoded message lie, and how its blocks are coded, as a value that the kernels of a device are
// given: what a codec knows of a message from (count, options) alone.
#ifndef TUTTI_KERNELS_MESSAGE_LAYOUT_H_
#define TUTTI_KERNELS_MESSAGE_LAYOUT_H_

#include <cstdint>

#include "kernels/host_device.h"

namespace tutti::kernels {

enum class Coder : std::uint8_t { kRaw, kF16, kBF16, kGrid8, kGrid4, kRotatedGrid4, kMinMax8, kSign, kTopK };

inline constexpr std::int64_t kMaxHeaderBytes = 24;

// header · the numbers of each block · the code of each block. A message of count 0 has no blocks.
struct MessageLayout {
  // The coders of which each element is coded alone need no blocks; their messages are cut into blocks of this many
  // elements, so that many threads work on one message.
  static constexpr std::int64_t kBlockOfSingles = 1024;

  // The blocks of a message without numbers whose elements are coded alone, in `element_bytes` bytes each.
  void CutSingles(std::int64_t element_bytes) {
    block = kBlockOfSingles;
    blocks = (count + block - 1) / block;
    code_bytes = block * element_bytes;
  }

  Coder coder = Coder::kRaw;
  bool stochastic = false;  // values are rounded at random
  std::int32_t header_bytes = 0;
  std::uint8_t header[kMaxHeaderBytes] = {};
  std::int64_t count = 0;
  std::int64_t block = 1;  // elements of every block but the last, which may have fewer
  std::int64_t blocks = 0;
  std::int64_t numbers_bytes = 0;  // of one block
  std::int64_t code_bytes = 0;     // of one block, if not the last
  std::int64_t kept = 0;           // kTopK: elements that are sent of a block,
  std::int64_t kept_of_last = 0;   // and of the last block
  std::uint64_t seed = 0;          // of the random numbers of rounding and rotation
};

// One block of a message; Byte is std::uint8_t, or const where the message is only read.
template <class Byte>
struct BlockPlace {
  std::int64_t index;
  std::int64_t begin;     // the first element
  std::int64_t elements;  // at least 1
  Byte* numbers;
  Byte* code;
};

template <class Byte>
TUTTI_HOST_DEVICE BlockPlace<Byte> PlaceOf(const MessageLayout& layout, std::int64_t index, Byte* message) {
  const std::int64_t begin = index * layout.block;
  const std::int64_t left = layout.count - begin;
  Byte* const numbers = message + layout.header_bytes;
  return {index, begin, left < layout.block ? left : layout.block, numbers + index * layout.numbers_bytes,
          numbers + layout.blocks * layout.numbers_bytes + index * layout.code_bytes};
}

// The bytes of an index into a block of the coder kTopK.
constexpr std::int64_t IndexBytes(std::int64_t elements) {
  return elements <= std::int64_t{1} << 16 ? 2 : elements <= std::int64_t{1} << 32 ? 4 : 8;
}

}  // namespace tutti::kernels

#endif  // TUTTI_KERNELS_MESSAGE_LAYOUT_H_
