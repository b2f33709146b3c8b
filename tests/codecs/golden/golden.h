// Golden vectors: fingerprints (FNV-1a) of what a codec makes of an input of tests/codecs/inputs.h with seed 1. Every
// implementation (scalar, and each SIMD instruction set) must give these bytes; a change here is a change of the wire.
#ifndef TESTS_CODECS_GOLDEN_GOLDEN_H_
#define TESTS_CODECS_GOLDEN_GOLDEN_H_

#include <cstdint>

#include "tests/codecs/inputs.h"
#include "tutti/codec.h"

namespace tutti {

struct GoldenMessage {
  Input input;
  std::int64_t count;
  CodecOptions options;
  std::uint64_t encoded;  // fingerprint of the message
  std::uint64_t decoded;  // fingerprint of the decoded elements
};

}  // namespace tutti

#endif  // TESTS_CODECS_GOLDEN_GOLDEN_H_
