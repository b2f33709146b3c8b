// One byte per element and an own range for each block (docs/decisions/0002-uint8-block.md).
//
// A block of values in [min, max] gets the step (max − min)/255, rounded up to 16 significant bits, and sends for each
// value the nearest of 256 levels. Zero is a level when it lies in the range; equal values are exact. The decoder
// computes min + code · step.
#include "algorithms/codecs/block_message.h"
#include "kernels/quantize.h"

namespace tutti {
namespace {

struct Uint8Block {
  static constexpr absl::string_view kName = "uint8_block";
  static constexpr codecs::CodecId kId = codecs::CodecId::kUint8Block;

  static codecs::BlockNumbers Encode(const kernels::FiniteRange& range, absl::Span<const float> values,
                                     std::uint8_t* codes) {
    const kernels::Uint8Grid grid = kernels::MakeUint8Grid(range.min, range.max);
    kernels::EncodeBlock(grid, values, codes);
    return {grid.min(), grid.step};
  }
  static void Decode(codecs::BlockNumbers numbers, const std::uint8_t* codes, bool accumulate,
                     absl::Span<float> values) {
    kernels::DecodeBlock(kernels::MakeUint8Values(numbers.first, numbers.second), codes, accumulate, values);
  }
};

using Message = codecs::BlockMessage<Uint8Block>;

}  // namespace
}  // namespace tutti

TUTTI_CODEC(uint8_block);
constinit const tutti::Codec tutti_codec_uint8_block = {
    .name = tutti::Uint8Block::kName,
    .summary = "8 bits per element, each block of `block` elements with its own range; zero and equal values exact",
    .error_bound = "0.501 · (max − min) / 255 of the block, and rounding to fp32",
    .validate = tutti::Message::Validate,
    .encoded_bytes = tutti::Message::EncodedBytes,
    .encode = tutti::Message::Encode,
    .decode = tutti::Message::Decode,
};
