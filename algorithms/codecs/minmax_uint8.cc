// One byte per element, with the arithmetic of Bagua's MinMaxUInt8; block=0 gives Bagua's results bit for bit. The
// codec is kept for comparison with Bagua's runs: uint8_block is better in every case.
#include "algorithms/codecs/block_layout.h"
#include "kernels/range_blocks.h"

namespace tutti {
namespace {

struct MinMaxUint8 : codecs::KernelScheme<MinMaxUint8, kernels::EncodeRangeBlocks, kernels::DecodeRangeBlocks> {
  static constexpr absl::string_view kName = "minmax_uint8";
  static constexpr absl::string_view kOptions = "block";
  static constexpr std::uint8_t kId = 2;
  using Numbers = std::array<float, 2>;  // min, max

  static kernels::Coder CoderOf(const CodecOptions& /*options*/) { return kernels::Coder::kMinMax8; }
  static std::int64_t CodeBytes(std::int64_t elements, const CodecOptions& /*options*/) { return elements; }
};

using Message = codecs::BlockMessage<MinMaxUint8>;

}  // namespace
}  // namespace tutti

TUTTI_CODEC(minmax_uint8) = {
    .name = tutti::MinMaxUint8::kName,
    .summary = "8 bits per element as Bagua encoded them (levels of the absolute value; block=0 for its exact results)",
    .error_bound = "0.501 · (max − min + 1e-7) / 255 of the block, while max|x| < 10 · (max − min + 1e-7)",
    .options = tutti::MinMaxUint8::kOptions,
    .defaults = {.block = 1024},
    .validate = tutti::Message::Validate,
    .encoded_bytes = tutti::Message::EncodedBytes,
    .encode = tutti::Message::Encode,
    .decode = tutti::Message::Decode,
    .layout = tutti::codecs::LayoutOf<tutti::MinMaxUint8>,
};
