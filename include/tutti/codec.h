// Codecs: elements to fewer bytes and back.
#ifndef TUTTI_CODEC_H_
#define TUTTI_CODEC_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tutti/dtype.h"

namespace tutti {

// Options of a codec as given in a strategy name; a codec ignores none: `validate` refuses what it does not know.
struct CodecOptions {
  std::int64_t block = 1024;  // elements that share one range; a power of two; 0: the whole message
  bool operator==(const CodecOptions&) const = default;
};

// A codec is a record of pure functions. Every function is thread-safe and allocates nothing.
//
// Contract: the encoded size depends only on (count, options), so that both sides of a message know it; zero stays
// zero; a NaN or Inf makes its block decode to NaN; scalar, SIMD and CUDA versions produce identical bytes. A message
// that would not be smaller than its elements carries these as they are, and is exact (NaN and Inf too).
struct Codec {
  absl::string_view name;
  absl::string_view summary;
  // Largest |x - decode(encode(x))| for finite input, as a formula for the docs.
  absl::string_view error_bound;
  absl::Status (*validate)(const CodecOptions& options);
  // Bytes of the message for `count` elements (≥ 0), header included.
  std::int64_t (*encoded_bytes)(std::int64_t count, const CodecOptions& options);
  // `dst` has exactly encoded_bytes(src.size()) bytes.
  void (*encode)(absl::Span<const float> src, const CodecOptions& options, absl::Span<std::uint8_t> dst);
  // dst = decoded, or dst += decoded. DataLoss when the header does not describe dst.size() elements of this
  // codec and these options, or when `src` has the wrong length; dst is then unchanged.
  absl::Status (*decode)(absl::Span<const std::uint8_t> src, const CodecOptions& options, bool accumulate,
                         absl::Span<float> dst);
};

struct CodecChoice {
  const Codec* codec = nullptr;
  CodecOptions options;
  bool operator==(const CodecChoice&) const = default;
};

// All codecs of this build, in alphabetical order (generated from algorithms/codecs/*.cc).
absl::Span<const Codec* const> AllCodecs();
// NotFound lists the valid names.
absl::StatusOr<const Codec*> FindCodec(absl::string_view name);

}  // namespace tutti

// Defines the codec of algorithms/codecs/<name>.cc; the manifest finds it by the file's name.
#define TUTTI_CODEC(name) extern constinit const ::tutti::Codec tutti_codec_##name

#endif  // TUTTI_CODEC_H_
