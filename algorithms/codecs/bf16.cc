// bfloat16: the upper half of an fp32, rounded. The codec is linear: a collective can add its messages as they are.
#include "algorithms/codecs/cast_message.h"

namespace tutti {
namespace {

using Message = codecs::CastMessage<DType::kBF16>;

}  // namespace
}  // namespace tutti

TUTTI_CODEC(bf16) = {
    .name = tutti::Message::kName,
    .summary = "Every element rounded to bfloat16 (8 significant bits, the range of fp32)",
    .error_bound =
        "2^-8 · |x|, at least 2^-134; stochastic: twice that; a value that rounds beyond 3.39e38 becomes infinite",
    .largest_error = tutti::Message::LargestError,
    .options = tutti::Message::kOptions,
    .defaults = {},
    .linear = tutti::DType::kBF16,
    .validate = tutti::Message::Validate,
    .encoded_bytes = tutti::Message::EncodedBytes,
    .encode = tutti::Message::Encode,
    .decode = tutti::Message::Decode,
    .layout = tutti::Message::Layout,
};
