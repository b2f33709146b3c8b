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

// How a codec rounds a value between two of its levels: to the nearest level; or to one of the two at random, more
// likely to the nearer one, so that the average over many values is right.
enum class Rounding : std::uint8_t { kNearest, kStochastic };
absl::string_view Name(Rounding rounding);

namespace kernels {
struct MessageLayout;
}

// All options of all codecs. A codec takes some of them (Codec::options) and rejects values other than these defaults
// for the rest.
struct CodecOptions {
  std::int64_t block = 0;  // elements that share one range or choice, a power of two; 0: the whole message
  Rounding rounding = Rounding::kNearest;
  std::uint64_t seed = 0;  // seed of the random numbers of rounding and rotation
  bool rotation = false;   // turn each block at random before it is rounded, which spreads its outliers
  double density = 1;      // share of the elements that travel, above 0
  bool operator==(const CodecOptions&) const = default;
};

// A codec is a record of pure functions. Every function is thread-safe; encode and decode allocate nothing.
//
// Contract:
// - The encoded size depends only on (count, options), so that both sides of a message know it.
// - Zero stays zero; with rotation, and where `keeps_zeros` is false, in blocks of zeros only.
// - A NaN or Inf shows: its whole block decodes to NaN; with a linear codec (see `linear`) only its own element shows
//   it.
// - Scalar, SIMD and CUDA versions produce identical bytes.
// - A message that would not be smaller than its elements holds the elements unchanged, and is exact (NaN and Inf too).
// - decode may be given a message in the memory of a peer, which that peer may change at any time: out of malice, or
//   after a failure. decode therefore reads every length, index and header field once, checks what it read and uses
//   only that; whatever the bytes are at each moment, it touches nothing but `src` and `dst`, and returns OK or
//   DataLoss.
struct Codec {
  absl::string_view name;
  absl::string_view summary;
  // Largest |x - decode(encode(x))| for finite input, as a formula for the docs.
  absl::string_view error_bound;
  // A bound of the same error as a number, for programs that check codecs: no element of `block`, whatever the draw,
  // has a larger error. `block` are finite elements that are encoded together: a block of a message (the whole message
  // where options.block is 0), or one element where the codec is linear. Infinity where an element may decode to NaN or
  // Inf. May allocate.
  double (*largest_error)(absl::Span<const float> block, const CodecOptions& options);
  // The names of the options that the codec takes, "block, rounding, seed", and the values of all options that a
  // strategy name does not give.
  absl::string_view options;
  CodecOptions defaults;
  // Set when a message is just its elements (rounded to nearest) converted to this dtype, without a header: a
  // collective may then add and move messages as elements of this dtype.
  std::optional<DType> linear = std::nullopt;
  // False where a zero beside other elements may decode to another number.
  bool keeps_zeros = true;
  // InvalidArgument names the option and what is valid.
  absl::Status (*validate)(const CodecOptions& options);
  // Bytes of the message for `count` elements (≥ 0), header included.
  std::int64_t (*encoded_bytes)(std::int64_t count, const CodecOptions& options);
  // Encodes `src` into `dst`, which has exactly encoded_bytes(src.size()) bytes. `draw` names the random numbers of
  // this message: stochastic rounding gives the same bytes for the same (seed, draw, src), and is independent
  // otherwise, also from element to element.
  void (*encode)(absl::Span<const float> src, const CodecOptions& options, std::uint64_t draw,
                 absl::Span<std::uint8_t> dst);
  // Sets `dst` to the decoded elements, or adds them to it. DataLoss when `src` has the wrong length or is no message
  // for dst.size() elements of this codec and these options: `dst` is unchanged where the length or the header is
  // wrong, and undefined where a code in the middle of the message is wrong.
  absl::Status (*decode)(absl::Span<const std::uint8_t> src, const CodecOptions& options, bool accumulate,
                         absl::Span<float> dst);
  // The layout of a message for `count` elements, for the kernels of a device (src/kernels/message_layout.h). Null:
  // there are no such kernels, and the codec works in host memory only.
  kernels::MessageLayout (*layout)(std::int64_t count, const CodecOptions& options) = nullptr;
};

struct CodecChoice {
  const Codec* codec = nullptr;
  CodecOptions options;
  bool operator==(const CodecChoice&) const = default;
};

// Text such as "uint8_block:block=1024": the codec and the options that differ from CodecOptions().
std::string ToString(const CodecChoice& choice);

// The value of the option called `name`, as strategy names write it; empty when there is no such option.
std::string OptionText(const CodecOptions& options, absl::string_view name);

// A check for Codec::validate: InvalidArgument when `options` sets an option that is not in `taken` ("block, seed"),
// the list of those that the codec takes.
absl::Status CheckTaken(absl::string_view codec, absl::string_view taken, const CodecOptions& options);

// All codecs of this process, those of extensions (extension.h) too, in alphabetical order. What is returned stays
// valid.
absl::Span<const Codec* const> AllCodecs();
// NotFound lists the valid names.
absl::StatusOr<const Codec*> FindCodec(absl::string_view name);

}  // namespace tutti

// Defines the codec of the file <name>.cc: TUTTI_CODEC(name) = {.name = "name", …}; in Tutti's tree the file lies in
// algorithms/codecs, elsewhere it is given to tutti_add_extensions (extension.h).
#define TUTTI_CODEC(name)                         \
  extern const ::tutti::Codec tutti_codec_##name; \
  constinit const ::tutti::Codec tutti_codec_##name

#endif  // TUTTI_CODEC_H_
