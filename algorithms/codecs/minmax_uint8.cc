// One byte per element, with the arithmetic of Bagua's MinMaxUInt8; block=0 gives its results bit for bit. Kept for
// comparison with runs made there: uint8_block is better in every case.
#include "algorithms/codecs/block_message.h"
#include "kernels/quantize.h"

namespace tutti {
namespace {

struct MinMaxUint8 {
  static constexpr absl::string_view kName = "minmax_uint8";
  static constexpr codecs::CodecId kId = codecs::CodecId::kMinMaxUint8;

  static codecs::BlockNumbers Encode(const kernels::FiniteRange& range, absl::Span<const float> values,
                                     std::uint8_t* codes) {
    // Adding 0 makes the sign of a zero, which depends on the order of comparisons, positive.
    const codecs::BlockNumbers numbers = {range.min + 0.0f, range.max + 0.0f};
    kernels::EncodeBlock(kernels::MakeMinMaxLevels(numbers.first, numbers.second), values, codes);
    return numbers;
  }
  static void Decode(codecs::BlockNumbers numbers, const std::uint8_t* codes, bool accumulate,
                     absl::Span<float> values) {
    kernels::DecodeBlock(kernels::MakeMinMaxLevels(numbers.first, numbers.second), codes, accumulate, values);
  }
};

using Message = codecs::BlockMessage<MinMaxUint8>;

}  // namespace
}  // namespace tutti

TUTTI_CODEC(minmax_uint8);
constinit const tutti::Codec tutti_codec_minmax_uint8 = {
    .name = tutti::MinMaxUint8::kName,
    .summary = "8 bits per element as Bagua encoded them (levels of the absolute value; block=0 for its exact results)",
    .error_bound = "0.501 · (max − min + 1e-7) / 255 of the block, while max|x| < 10 · (max − min + 1e-7)",
    .validate = tutti::Message::Validate,
    .encoded_bytes = tutti::Message::EncodedBytes,
    .encode = tutti::Message::Encode,
    .decode = tutti::Message::Decode,
};
