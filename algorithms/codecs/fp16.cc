// IEEE half precision. The codec is linear: a collective can add its messages as they are.
//
// The range of the type ends at 65504: larger values become infinite, so that the user sees the overflow, as in mixed
// precision training.
#include "algorithms/codecs/cast_message.h"

namespace tutti {
namespace {

using Message = codecs::CastMessage<DType::kF16>;

}  // namespace
}  // namespace tutti

TUTTI_CODEC(fp16) = {
    .name = tutti::Message::kName,
    .summary = "Every element rounded to IEEE half precision (11 significant bits, up to 65504)",
    .error_bound =
        "2^-11 · |x|, at least 2^-25; stochastic: twice that; a value that rounds beyond 65504 becomes infinite",
    .largest_error = tutti::Message::LargestError,
    .options = tutti::Message::kOptions,
    .defaults = {},
    .linear = tutti::DType::kF16,
    .validate = tutti::Message::Validate,
    .encoded_bytes = tutti::Message::EncodedBytes,
    .encode = tutti::Message::Encode,
    .decode = tutti::Message::Decode,
    .layout = tutti::Message::Layout,
};
