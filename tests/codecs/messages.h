// Encodes and decodes in one call, and compares messages with the golden vectors.
#ifndef TESTS_CODECS_MESSAGES_H_
#define TESTS_CODECS_MESSAGES_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "tests/codecs/golden/golden.h"
#include "tests/codecs/inputs.h"
#include "tests/kernels/differences.h"
#include "tutti/codec.h"

namespace tutti {

inline std::vector<std::uint8_t> EncodeMessage(const Codec& codec, const CodecOptions& options,
                                               const std::vector<float>& values, std::uint64_t draw = 0) {
  std::vector<std::uint8_t> message(codec.encoded_bytes(static_cast<std::int64_t>(values.size()), options));
  codec.encode(values, options, draw, absl::MakeSpan(message));
  return message;
}

inline std::vector<float> RoundTrip(const Codec& codec, const CodecOptions& options, const std::vector<float>& values,
                                    std::uint64_t draw = 0) {
  std::vector<float> decoded(values.size());
  const absl::Status status =
      codec.decode(EncodeMessage(codec, options, values, draw), options, false, absl::MakeSpan(decoded));
  EXPECT_TRUE(status.ok()) << status;
  return decoded;
}

// What differs between two messages of `count` elements: the first byte, and the elements that they decode to. Empty
// when the messages are equal.
inline std::string MessageDifferences(const Codec& codec, const CodecOptions& options, std::int64_t count,
                                      absl::Span<const std::uint8_t> got, absl::Span<const std::uint8_t> expected) {
  if (got.size() != expected.size()) return absl::StrCat(got.size(), " bytes, expected ", expected.size());
  const auto differs = std::mismatch(got.begin(), got.end(), expected.begin());
  if (differs.first == got.end()) return "";
  const auto decoded = [&](absl::Span<const std::uint8_t> message) {
    std::vector<float> values(static_cast<std::size_t>(count));
    const absl::Status status = codec.decode(message, options, false, absl::MakeSpan(values));
    EXPECT_TRUE(status.ok()) << status;
    return values;
  };
  const std::string elements = kernels::Differences(decoded(got), decoded(expected));
  return absl::StrCat("byte ", differs.first - got.begin(), " of ", got.size(), " is ", int{*differs.first},
                      ", expected ", int{*differs.second}, "; decoded, ",
                      elements.empty() ? "all elements are equal" : elements);
}

// FNV-1a, 64 bits.
inline std::uint64_t Fingerprint(const void* data, std::size_t bytes) {
  std::uint64_t hash = 0xCBF29CE484222325u;
  for (std::size_t i = 0; i < bytes; ++i) hash = (hash ^ static_cast<const std::uint8_t*>(data)[i]) * 0x100000001B3u;
  return hash;
}

// On a difference the failure shows the line to put into the golden file, if the change of the wire is wanted.
template <std::size_t kCases>
void CheckGolden(const Codec& codec, const GoldenMessage (&cases)[kCases]) {
  for (const GoldenMessage& golden : cases) {
    const std::vector<float> values = MakeValues(golden.input, golden.count);
    const std::vector<std::uint8_t> message = EncodeMessage(codec, golden.options, values);
    const std::vector<float> decoded = RoundTrip(codec, golden.options, values);
    const std::uint64_t encoded_print = Fingerprint(message.data(), message.size());
    const std::uint64_t decoded_print = Fingerprint(decoded.data(), decoded.size() * sizeof(float));
    EXPECT_TRUE(encoded_print == golden.encoded && decoded_print == golden.decoded)
        << Name(golden.input) << ", " << golden.count << ", " << ToString({&codec, golden.options}) << ", 0x"
        << std::hex << encoded_print << "u, 0x" << decoded_print << "u";
  }
}

}  // namespace tutti

#endif  // TESTS_CODECS_MESSAGES_H_
