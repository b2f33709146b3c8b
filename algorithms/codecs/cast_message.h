// The message of a codec that rounds each element to a 16-bit floating type: just the elements of that type. The
// message has no header, because a collective may take messages for tensors: decode checks only the length.
#ifndef TUTTI_ALGORITHMS_CODECS_CAST_MESSAGE_H_
#define TUTTI_ALGORITHMS_CODECS_CAST_MESSAGE_H_

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "kernels/message_layout.h"
#include "kernels/random.h"
#include "kernels/reduce.h"
#include "kernels/stochastic_cast.h"
#include "tutti/codec.h"

namespace tutti::codecs {

template <DType kType>
class CastMessage {
 public:
  static constexpr absl::string_view kName = kType == DType::kF16 ? "fp16" : "bf16";
  static constexpr absl::string_view kOptions = "rounding, seed";

  static absl::Status Validate(const CodecOptions& options) { return CheckTaken(kName, kOptions, options); }

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
    std::uint16_t piece[kPiece];  // aligned for the kernels; `dst` need not be aligned
    const kernels::RandomStream random = kernels::MakeRandomStream(options.seed, draw, 0);
    for (std::size_t begin = 0; begin < src.size(); begin += kPiece) {
      const std::size_t n = std::min(kPiece, src.size() - begin);
      if (options.rounding == Rounding::kNearest) {
        kernels::Convert(kType, piece, DType::kF32, &src[begin], static_cast<std::int64_t>(n),
                         kernels::Stores::kCached);
      } else {
        kernels::CastAtRandom(kType, &src[begin], n, random, begin, piece);
      }
      std::memcpy(&dst[2 * begin], piece, 2 * n);
    }
  }

  static absl::Status Decode(absl::Span<const std::uint8_t> src, const CodecOptions& /*options*/, bool accumulate,
                             absl::Span<float> dst) {
    if (src.size() != 2 * dst.size()) {
      return absl::DataLossError(
          absl::StrCat(kName, " message has ", src.size(), " bytes; ", dst.size(), " elements need ", 2 * dst.size()));
    }
    std::uint16_t piece[kPiece];
    float decoded[kPiece];
    for (std::size_t begin = 0; begin < dst.size(); begin += kPiece) {
      const std::size_t n = std::min(kPiece, dst.size() - begin);
      std::memcpy(piece, &src[2 * begin], 2 * n);
      kernels::Convert(DType::kF32, accumulate ? decoded : &dst[begin], kType, piece, static_cast<std::int64_t>(n),
                       kernels::Stores::kCached);
      if (!accumulate) continue;
      for (std::size_t i = 0; i < n; ++i) dst[begin + i] += decoded[i];
    }
    return absl::OkStatus();
  }

 private:
  static_assert(std::endian::native == std::endian::little, "elements are copied to the wire as they are");
  static constexpr std::size_t kPiece = 1024;
};

}  // namespace tutti::codecs

#endif  // TUTTI_ALGORITHMS_CODECS_CAST_MESSAGE_H_
