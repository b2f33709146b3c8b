// One byte per element; every block has its own range (docs/decisions/0002-uint8-block.md).
//
// A block of values in [min, max] has 256 levels, (max − min)/255 apart (rounded up to 16 significant bits). Each value
// is sent as the nearest level, or with rounding=stochastic as one of the two levels beside the value. Zero is a level
// when it lies in the range; equal values are exact. The decoder computes min + code · step.
#include "algorithms/codecs/block_layout.h"
#include "algorithms/codecs/grid_error.h"
#include "kernels/range_blocks.h"

namespace tutti {
namespace {

struct Uint8Block : codecs::KernelScheme<Uint8Block, kernels::EncodeRangeBlocks, kernels::DecodeRangeBlocks> {
  static constexpr absl::string_view kName = "uint8_block";
  static constexpr absl::string_view kOptions = "block, rounding, seed";
  static constexpr std::uint8_t kId = 1;
  using Numbers = std::array<float, 2>;  // the value of code 0, the step

  static double LargestError(absl::Span<const float> block, const CodecOptions& options) {
    return codecs::LargestGridError(block, 255, options.rounding);
  }
  static kernels::Coder CoderOf(const CodecOptions& /*options*/) { return kernels::Coder::kGrid8; }
  static std::int64_t CodeBytes(std::int64_t elements, const CodecOptions& /*options*/) { return elements; }
};

using Message = codecs::BlockMessage<Uint8Block>;

}  // namespace
}  // namespace tutti

TUTTI_CODEC(uint8_block) = {
    .name = tutti::Uint8Block::kName,
    .summary = "8 bits per element, each block of `block` elements with its own range; zero and equal values exact",
    .error_bound = "0.501 · (max − min) / 255 of the block, and rounding to fp32; stochastic: (max − min) / 254",
    .largest_error = tutti::Uint8Block::LargestError,
    .options = tutti::Uint8Block::kOptions,
    .defaults = {.block = 1024},
    .validate = tutti::Message::Validate,
    .encoded_bytes = tutti::Message::EncodedBytes,
    .encode = tutti::Message::Encode,
    .decode = tutti::Message::Decode,
    .layout = tutti::codecs::LayoutOf<tutti::Uint8Block>,
};
