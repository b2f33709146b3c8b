// Saved states end with their hash, by which damage is seen.
#ifndef TUTTI_SYNC_SEALED_BYTES_H_
#define TUTTI_SYNC_SEALED_BYTES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "sync/byte_stream.h"
#include "sync/hash.h"

namespace tutti {

// `content`, followed by its hash.
inline std::string Seal(std::string content) {
  const std::uint64_t hash = Hash(content);
  return content.append(reinterpret_cast<const char*>(&hash), sizeof(hash));
}

// The content of what Seal has returned.
inline absl::string_view ContentOf(absl::string_view sealed) {
  return sealed.substr(0, sealed.size() - std::min(sealed.size(), sizeof(std::uint64_t)));
}

// Whether `sealed` is what Seal has returned.
inline bool IsWhole(absl::string_view sealed) {
  const absl::string_view content = ContentOf(sealed);
  return ByteReader(sealed.substr(content.size())).Number() == static_cast<std::int64_t>(Hash(content));
}

}  // namespace tutti

#endif  // TUTTI_SYNC_SEALED_BYTES_H_
