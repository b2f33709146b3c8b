// What is left of numbers that were encoded and decoded.
#ifndef TUTTI_TESTS_ALGORITHMS_REFERENCES_CODEC_LOSS_H_
#define TUTTI_TESTS_ALGORITHMS_REFERENCES_CODEC_LOSS_H_

#include <gtest/gtest.h>

#include "tests/harness/training.h"
#include "tutti/codec.h"

namespace tutti {

inline CodecChoice CodecOfDefaults(absl::string_view name) {
  const Codec* const codec = *FindCodec(name);
  return {codec, codec->defaults};
}

// The codec `name` with its default options, except `block`.
inline CodecChoice CodecOfBlocks(absl::string_view name, std::int64_t block) {
  CodecChoice choice = CodecOfDefaults(name);
  choice.options.block = block;
  return choice;
}

inline CodecChoice Codec8Bit(std::int64_t block = 1024) { return CodecOfBlocks("uint8_block", block); }

inline std::int64_t EncodedBytes(const CodecChoice& codec, std::size_t count) {
  return codec.codec->encoded_bytes(static_cast<std::int64_t>(count), codec.options);
}

// The values after encoding and decoding, D(Q(values)).
inline Floats ThroughCodec(const CodecChoice& codec, const Floats& values) {
  if (values.empty()) return {};
  std::vector<std::uint8_t> message(EncodedBytes(codec, values.size()));
  codec.codec->encode(values, codec.options, /*draw=*/0, absl::MakeSpan(message));
  Floats decoded(values.size());
  EXPECT_TRUE(codec.codec->decode(message, codec.options, /*accumulate=*/false, absl::MakeSpan(decoded)).ok());
  return decoded;
}

}  // namespace tutti

#endif  // TUTTI_TESTS_ALGORITHMS_REFERENCES_CODEC_LOSS_H_
