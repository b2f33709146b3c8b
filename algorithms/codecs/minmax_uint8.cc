// One byte per element, with the arithmetic of Bagua's MinMaxUInt8; block=0 gives Bagua's results bit for bit. The
// codec is kept for comparison with Bagua's runs: uint8_block is better in every case.
#include <algorithm>
#include <limits>

#include "algorithms/codecs/block_layout.h"
#include "kernels/range_blocks.h"
#include "tutti/codecs/finite_range.h"

namespace tutti {
namespace {

struct MinMaxUint8 : codecs::KernelScheme<MinMaxUint8, kernels::EncodeRangeBlocks, kernels::DecodeRangeBlocks> {
  static constexpr absl::string_view kName = "minmax_uint8";
  static constexpr absl::string_view kOptions = "block";
  static constexpr std::uint8_t kId = 2;
  using Numbers = std::array<float, 2>;  // min, max

  // Levels are range / 255 apart, with range = max - min + 1e-7; an element becomes the nearest one. Far from zero a
  // level has a large number, max|x| · 255 / range, which fp32 rounds by 2^-24 of the number: when the element is
  // divided, when the lowest level is computed (at which or 255 levels above which a code ends), when the lowest level
  // is added to the code, and when the sum is multiplied. Where the range or such a number overflows, NaN or Inf come
  // back.
  static double LargestError(absl::Span<const float> block, const CodecOptions& /*options*/) {
    constexpr double kLargest = std::numeric_limits<float>::max();
    const kernels::FiniteRange values = kernels::FindRange(block);
    const double largest = std::max(-static_cast<double>(values.min), static_cast<double>(values.max));
    const double range = static_cast<double>(values.max) - static_cast<double>(values.min) + 1e-7;
    if (range > kLargest || 256 * largest > kLargest * range) return std::numeric_limits<double>::infinity();
    return 0.501 * range / 255 + 0x1p-21 * largest;
  }
  static kernels::Coder CoderOf(const CodecOptions& /*options*/) { return kernels::Coder::kMinMax8; }
  static std::int64_t CodeBytes(std::int64_t elements, const CodecOptions& /*options*/) { return elements; }
};

using Message = codecs::BlockMessage<MinMaxUint8>;

}  // namespace
}  // namespace tutti

TUTTI_CODEC(minmax_uint8) = {
    .name = tutti::MinMaxUint8::kName,
    .summary = "8 bits per element as Bagua encoded them (levels of the absolute value; block=0 for its exact results)",
    .error_bound =
        "0.501 · (max − min + 1e-7) / 255 of the block, and 2^-21 · max|x|; a block in which max − min, or 256 · "
        "max|x| / (max − min + 1e-7), is above 3.4e38 may decode to NaN or Inf",
    .largest_error = tutti::MinMaxUint8::LargestError,
    .options = tutti::MinMaxUint8::kOptions,
    .defaults = {.block = 1024},
    .validate = tutti::Message::Validate,
    .encoded_bytes = tutti::Message::EncodedBytes,
    .encode = tutti::Message::Encode,
    .decode = tutti::Message::Decode,
    .layout = tutti::codecs::LayoutOf<tutti::MinMaxUint8>,
};
