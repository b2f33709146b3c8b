// Two elements per byte: the arithmetic of uint8_block with 16 levels (docs/decisions/0002-uint8-block.md).
//
// With so few levels one outlier costs its whole block precision. rotation=true turns every block by a random Hadamard
// rotation before encoding, and back after decoding: what is encoded is then nearly normally distributed, whatever the
// values were. With rotation, zeros stay zero only in blocks of zeros. After SDP4Bit (https://arxiv.org/abs/2410.15526)
// and THC (https://arxiv.org/abs/2302.08545).
#include <cmath>
#include <limits>
#include <vector>

#include "algorithms/codecs/block_layout.h"
#include "algorithms/codecs/grid_error.h"
#include "kernels/hadamard.h"
#include "kernels/range_blocks.h"
#include "tutti/codecs/random.h"

namespace tutti {
namespace {

struct Uint4Block : codecs::KernelScheme<Uint4Block, kernels::EncodeRangeBlocks, kernels::DecodeRangeBlocks> {
  static constexpr absl::string_view kName = "uint4_block";
  static constexpr absl::string_view kOptions = "block, rounding, seed, rotation";
  static constexpr std::uint8_t kId = 3;
  using Numbers = std::array<float, 2>;  // the value of code 0, the step

  static absl::Status Validate(const CodecOptions& options) {
    constexpr auto kMax = static_cast<std::int64_t>(kernels::Rotation::kMaxElements);
    if (!options.rotation || (options.block != 0 && options.block <= kMax)) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(kName, ": rotation=true needs a block from ", kSmallestBlock, " to ", kMax));
  }

  static std::uint32_t Fingerprint(const CodecOptions& options) {
    return options.rotation ? static_cast<std::uint32_t>(kernels::Mix(options.seed + 1)) | 1u : 0u;
  }

  static kernels::Coder CoderOf(const CodecOptions& options) {
    return options.rotation ? kernels::Coder::kRotatedGrid4 : kernels::Coder::kGrid4;
  }

  static std::int64_t CodeBytes(std::int64_t elements, const CodecOptions& /*options*/) { return (elements + 1) / 2; }
};

// The largest error of an element of a block that is rotated. A piece of n = 2^k elements is multiplied by there · H ·
// signs, and back by signs · H · back, with there · back · n = 1; every piece of a block is at most as long as the
// first one. H adds n numbers, so that an error e of each of them becomes back · n · e at most, if all of them point
// one way. (They rarely do: the root mean square of the errors grows by √2 at most.) An error e is that of the grid,
// and what the sums of fp32 lose: a sum of n numbers in k passes loses at most k · 2^-24 times the sum of their
// magnitudes, on the way there and again on the way back. Last, the factors `there` and `back` round what is below the
// smallest normal number, by half of the smallest fp32.
double LargestRotatedError(absl::Span<const float> block, const CodecOptions& options) {
  constexpr double kSmallest = std::numeric_limits<float>::denorm_min();
  const int log = kernels::FloorLog2(block.size());
  const double n = std::ldexp(1, log);
  const double there = kernels::RotationFactorThere(static_cast<std::size_t>(n));
  const double back = kernels::RotationFactorBack(static_cast<std::size_t>(n));
  std::vector<float> rotated(block.size());
  kernels::Rotation(options.seed, block.size()).Apply(block, rotated.data());
  const kernels::FiniteRange range = kernels::FindRange(block);
  const double largest = std::max(-static_cast<double>(range.min), static_cast<double>(range.max));
  const double rotated_largest = there * n * largest;  // at most
  const double grid = codecs::LargestGridError(rotated, 15, options.rounding);
  const double sums = log * 0x1p-24 * (2 * rotated_largest + grid);
  const double e = grid + sums + n * kSmallest / 2;
  if (n * (there * largest + e) > std::numeric_limits<float>::max()) return std::numeric_limits<double>::infinity();
  return back * n * e + kSmallest / 2;
}

double LargestError(absl::Span<const float> block, const CodecOptions& options) {
  return options.rotation ? LargestRotatedError(block, options) : codecs::LargestGridError(block, 15, options.rounding);
}

using Message = codecs::BlockMessage<Uint4Block>;

}  // namespace
}  // namespace tutti

TUTTI_CODEC(uint4_block) = {
    .name = tutti::Uint4Block::kName,
    .summary =
        "4 bits per element, each block of `block` elements with its own range; zero and equal values exact. "
        "rotation=true spreads outliers; zeros then stay zero only in blocks of zeros",
    .error_bound =
        "0.501 · (max − min) / 15 of the block, and rounding to fp32; stochastic: (max − min) / 14. With "
        "rotation (values below 2^121): in the root mean square, and √2 times that of the rotated block",
    .largest_error = tutti::LargestError,
    .options = tutti::Uint4Block::kOptions,
    .defaults = {.block = 128},
    .validate = tutti::Message::Validate,
    .encoded_bytes = tutti::Message::EncodedBytes,
    .encode = tutti::Message::Encode,
    .decode = tutti::Message::Decode,
    .layout = tutti::codecs::LayoutOf<tutti::Uint4Block>,
};
