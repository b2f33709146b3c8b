// The message of a codec that rounds each element to a 16-bit floating type: just the elements of that type. The
// message has no header, because a collective may take messages for tensors: decode checks only the length.
#ifndef TUTTI_ALGORITHMS_CODECS_CAST_MESSAGE_H_
#define TUTTI_ALGORITHMS_CODECS_CAST_MESSAGE_H_

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "kernels/cast_blocks.h"
#include "kernels/message_layout.h"
#include "tutti/codec.h"

namespace tutti::codecs {

template <DType kType>
class CastMessage {
 public:
  static constexpr absl::string_view kName = kType == DType::kF16 ? "fp16" : "bf16";
  static constexpr absl::string_view kOptions = "rounding, seed";

  static absl::Status Validate(const CodecOptions& options) { return CheckTaken(kName, kOptions, options); }

  // A value x lies between two values of the type that are at most 2^(1 - kBits) · |x| apart, or kSmallest where |x| is
  // small. A value beyond the largest of the type may become infinite.
  static double LargestError(absl::Span<const float> block, const CodecOptions& options) {
    constexpr int kBits = kType == DType::kF16 ? 11 : 8;  // significant bits
    constexpr double kSmallest = kType == DType::kF16 ? 0x1p-24 : 0x1p-133;
    constexpr double kLargest = kType == DType::kF16 ? 65504 : 0x1.FEp127;
    const double magnitude = std::abs(static_cast<double>(block[0]));
    if (magnitude > kLargest) return std::numeric_limits<double>::infinity();
    const double distance = std::max(std::ldexp(magnitude, 1 - kBits), kSmallest);
    return options.rounding == Rounding::kNearest ? distance / 2 : distance;
  }

  static std::int64_t EncodedBytes(std::int64_t count, const CodecOptions& /*options*/) { return 2 * count; }

  static kernels::MessageLayout Layout(std::int64_t count, const CodecOptions& options) {
    kernels::MessageLayout layout = {.coder = kType == DType::kF16 ? kernels::Coder::kF16 : kernels::Coder::kBF16,
                                     .stochastic = options.rounding == Rounding::kStochastic,
                                     .count = count,
                                     .seed = options.seed};
    layout.CutSingles(sizeof(std::uint16_t));
    return layout;
  }

  static void Encode(absl::Span<const float> src, const CodecOptions& options, std::uint64_t draw,
                     absl::Span<std::uint8_t> dst) {
    kernels::EncodeCastBlocks(Layout(static_cast<std::int64_t>(src.size()), options), src.data(), draw, dst.data());
  }

  static absl::Status Decode(absl::Span<const std::uint8_t> src, const CodecOptions& options, bool accumulate,
                             absl::Span<float> dst) {
    if (src.size() != 2 * dst.size()) {
      return absl::DataLossError(
          absl::StrCat(kName, " message has ", src.size(), " bytes; ", dst.size(), " elements need ", 2 * dst.size()));
    }
    const auto count = static_cast<std::int64_t>(dst.size());
    kernels::DecodeCastBlocks(Layout(count, options), src.data(), accumulate, dst.data());
    return absl::OkStatus();
  }

 private:
  static_assert(std::endian::native == std::endian::little, "elements are copied to the wire as they are");
};

}  // namespace tutti::codecs

#endif  // TUTTI_ALGORITHMS_CODECS_CAST_MESSAGE_H_
