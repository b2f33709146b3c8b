// Codecs: elements to fewer bytes and back.
#ifndef TUTTI_CODEC_H_
#define TUTTI_CODEC_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tutti/dtype.h"

namespace tutti {

// How a value between two levels chooses one of them: the nearest; or at random, the nearer the likelier, so that it is
// right on average.
enum class Rounding : std::uint8_t { kNearest, kStochastic };
absl::string_view Name(Rounding rounding);

// What codecs can be told. A codec takes some of these (Codec::options) and needs the others to be as they are here.
struct CodecOptions {
  std::int64_t block = 0;  // elements that share one range or choice, a power of two; 0: the whole message
  Rounding rounding = Rounding::kNearest;
  std::uint64_t seed = 0;  // of the random numbers of rounding and rotation
  bool rotation = false;   // turn each block at random before it is rounded, which spreads its outliers
  double density = 1;      // share of the elements that travel, above 0
  bool operator==(const CodecOptions&) const = default;
};

// A codec is a record of pure functions. Every function is thread-safe; encode and decode allocate nothing.
//
// Contract:
// - The encoded size depends only on (count, options), so that both sides of a message know it.
// - Zero stays zero. `sign`, and rotation, promise it for blocks of zeros only.
// - A NaN or Inf shows: its whole block decodes to NaN; of a linear codec, the element does.
// - Scalar, SIMD and CUDA versions produce identical bytes.
// - A message that would not be smaller than its elements carries these as they are, and is exact (NaN and Inf too).
struct Codec {
  absl::string_view name;
  absl::string_view summary;
  // Largest |x - decode(encode(x))| for finite input, as a formula for the docs.
  absl::string_view error_bound;
  // The options it takes: "block, rounding, seed"; and what they are when a strategy name does not give them.
  absl::string_view options;
  CodecOptions defaults;
  // Set when a message (rounded to nearest) is its elements converted to this dtype, without a header: a collective may
  // then add and move messages as elements of it.
  std::optional<DType> linear = std::nullopt;
  // InvalidArgument names the option and what is valid.
  absl::Status (*validate)(const CodecOptions& options);
  // Bytes of the message for `count` elements (≥ 0), header included.
  std::int64_t (*encoded_bytes)(std::int64_t count, const CodecOptions& options);
  // `dst` has exactly encoded_bytes(src.size()) bytes. `draw` names the random numbers of this message: stochastic
  // rounding repeats itself when (seed, draw, src) do, and is independent of it otherwise.
  void (*encode)(absl::Span<const float> src, const CodecOptions& options, std::uint64_t draw,
                 absl::Span<std::uint8_t> dst);
  // dst = decoded, or dst += decoded. DataLoss when `src` has the wrong length or is no message for dst.size() elements
  // of this codec and these options; dst is then unchanged.
  absl::Status (*decode)(absl::Span<const std::uint8_t> src, const CodecOptions& options, bool accumulate,
                         absl::Span<float> dst);
};

struct CodecChoice {
  const Codec* codec = nullptr;
  CodecOptions options;
  bool operator==(const CodecChoice&) const = default;
};

// "uint8_block:block=1024": what differs from CodecOptions().
std::string ToString(const CodecChoice& choice);

// The value of the option called `name`, as strategy names write it; empty when there is no such option.
std::string OptionText(const CodecOptions& options, absl::string_view name);

// For Codec::validate: InvalidArgument when `options` sets what a codec that takes only the options `taken` ("block,
// seed") has no use for.
absl::Status CheckTaken(absl::string_view codec, absl::string_view taken, const CodecOptions& options);

// All codecs of this build, in alphabetical order (generated from algorithms/codecs/*.cc).
absl::Span<const Codec* const> AllCodecs();
// NotFound lists the valid names.
absl::StatusOr<const Codec*> FindCodec(absl::string_view name);

}  // namespace tutti

// Defines the codec of algorithms/codecs/<name>.cc; the manifest finds it by the file's name.
#define TUTTI_CODEC(name) extern constinit const ::tutti::Codec tutti_codec_##name

#endif  // TUTTI_CODEC_H_
