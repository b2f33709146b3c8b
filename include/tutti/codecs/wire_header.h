// The 24 bytes in front of the messages of all codecs but the linear ones, little endian:
//
//   0  magic "TUTC"
//   4  version of the layout (1)
//   5  codec: its number, which no other codec has
//   6  dtype of the decoded elements
//   7  form: 0 blocks, 1 raw (elements as they are, because encoding would not make them smaller)
//   8  count, 64 bits: decoded elements
//  16  block, 32 bits: elements that share one range; 0: the whole message
//  20  options, 32 bits: a fingerprint of the other options on which the decoder depends; 0: there are none
//
// Both sides know every field from (count, options); the header is sent so that a disagreement is an error, not
// garbage.
#ifndef TUTTI_CODECS_WIRE_HEADER_H_
#define TUTTI_CODECS_WIRE_HEADER_H_

#include <array>
#include <cstdint>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tutti/dtype.h"

namespace tutti::codecs {

inline constexpr std::int64_t kHeaderBytes = 24;

enum class Form : std::uint8_t { kBlocks = 0, kRaw = 1 };

struct WireHeader {
  std::uint8_t codec;
  Form form;
  std::int64_t count;
  std::int64_t block;  // less than 2^32
  std::uint32_t options;
};

struct WireField {
  absl::string_view name;
  int offset;
  int bytes;
  std::uint64_t value;
};

struct WireFields {
  WireField list[8];
};

constexpr WireFields FieldsOf(const WireHeader& header) {
  return {{{"magic", 0, 4, 0x43545554},
           {"version", 4, 1, 1},
           {"codec", 5, 1, header.codec},
           {"dtype", 6, 1, static_cast<std::uint64_t>(DType::kF32)},
           {"form", 7, 1, static_cast<std::uint64_t>(header.form)},
           {"count", 8, 8, static_cast<std::uint64_t>(header.count)},
           {"block", 16, 4, static_cast<std::uint64_t>(header.block)},
           {"options", 20, 4, header.options}}};
}

// Writes `header` to `dst`, which has kHeaderBytes bytes.
inline void WriteHeader(const WireHeader& header, std::uint8_t* dst) {
  for (const WireField& field : FieldsOf(header).list) {
    for (int i = 0; i < field.bytes; ++i) dst[field.offset + i] = static_cast<std::uint8_t>(field.value >> (8 * i));
  }
}

// DataLoss unless `message` has `bytes` bytes and starts with `expected`; names the first field that differs. Nothing
// needs to be read from the header afterwards: all of its fields are those of `expected`.
inline absl::Status CheckHeader(absl::string_view codec, const WireHeader& expected, std::int64_t bytes,
                                absl::Span<const std::uint8_t> message) {
  if (static_cast<std::int64_t>(message.size()) != bytes) {
    return absl::DataLossError(absl::StrCat(codec, " message has ", message.size(), " bytes; ", expected.count,
                                            " elements in blocks of ", expected.block, " need ", bytes));
  }
  std::array<std::uint8_t, kHeaderBytes> header;  // a copy, because a peer may overwrite the message meanwhile
  std::memcpy(header.data(), message.data(), kHeaderBytes);
  for (const WireField& field : FieldsOf(expected).list) {
    std::uint64_t value = 0;
    for (int i = 0; i < field.bytes; ++i) value |= std::uint64_t{header[field.offset + i]} << (8 * i);
    if (value != field.value) {
      return absl::DataLossError(
          absl::StrCat(codec, " message header: ", field.name, " is ", value, ", expected ", field.value));
    }
  }
  return absl::OkStatus();
}

}  // namespace tutti::codecs

#endif  // TUTTI_CODECS_WIRE_HEADER_H_
