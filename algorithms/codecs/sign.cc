// One bit per element, and for each block the mean of its magnitudes: signSGD with a scale (Bernstein et al.,
// https://arxiv.org/abs/1802.04434; with error feedback, without which it need not converge: Karimireddy et al.,
// https://arxiv.org/abs/1901.09847).
//
// A bit cannot express zero. A block of zeros has the scale 0 and is exact; a zero in another block becomes +scale at
// an even index and -scale at an odd one, so that zeros cancel out in a sum over the block.
#include <algorithm>
#include <cmath>
#include <limits>

#include "algorithms/codecs/block_layout.h"
#include "kernels/sign_bits.h"

namespace tutti {
namespace {

struct Sign : codecs::KernelScheme<Sign, kernels::EncodeSignBlocks, kernels::DecodeSignBlocks> {
  static constexpr absl::string_view kName = "sign";
  static constexpr absl::string_view kOptions = "block";
  static constexpr std::uint8_t kId = 4;
  static constexpr std::int64_t kSmallestBlock = 8;  // the code of a block fills whole bytes
  using Numbers = std::array<float, 1>;              // the scale

  // An element x becomes the mean m with the sign of x, or plus or minus m where x is 0: the error is | |x| - m |. The
  // mean is rounded to fp32.
  static double LargestError(absl::Span<const float> block, const CodecOptions& /*options*/) {
    double sum = 0;
    double largest = 0;
    for (const float value : block) {
      const double magnitude = std::abs(static_cast<double>(value));
      sum += magnitude;
      largest = std::max(largest, magnitude);
    }
    const double mean = sum / static_cast<double>(block.size());
    return std::max(mean, largest - mean) + 0x1p-23 * mean + std::numeric_limits<float>::denorm_min();
  }
  static kernels::Coder CoderOf(const CodecOptions& /*options*/) { return kernels::Coder::kSign; }
  static std::int64_t CodeBytes(std::int64_t elements, const CodecOptions& /*options*/) { return (elements + 7) / 8; }
};

using Message = codecs::BlockMessage<Sign>;

}  // namespace
}  // namespace tutti

TUTTI_CODEC(sign) = {
    .name = tutti::Sign::kName,
    .summary =
        "1 bit per element: the sign of the element, times the mean magnitude of its block. Needs error feedback. A "
        "zero becomes plus or minus the mean magnitude (plus at even indexes of the block); a block of zeros stays "
        "zero",
    .error_bound = "the mean m of |x| of the block, or max|x| − m if that is larger",
    .largest_error = tutti::Sign::LargestError,
    .options = tutti::Sign::kOptions,
    .defaults = {.block = 256},
    .keeps_zeros = false,
    .validate = tutti::Message::Validate,
    .encoded_bytes = tutti::Message::EncodedBytes,
    .encode = tutti::Message::Encode,
    .decode = tutti::Message::Decode,
    .layout = tutti::codecs::LayoutOf<tutti::Sign>,
};
