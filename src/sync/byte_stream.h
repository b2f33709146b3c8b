// The byte format of saved states: numbers and ranges of memory as bytes, and back.
#ifndef TUTTI_SYNC_BYTE_STREAM_H_
#define TUTTI_SYNC_BYTE_STREAM_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"

namespace tutti {

static_assert(std::endian::native == std::endian::little, "states are little endian, as memory is");

class ByteWriter {
 public:
  void Number(std::int64_t value) { bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value)); }
  // Appends the number of bytes, then the bytes.
  void Bytes(const void* data, std::int64_t count) {
    Number(count);
    if (count > 0) bytes_.append(static_cast<const char*>(data), static_cast<std::size_t>(count));
  }
  const std::string& bytes() const { return bytes_; }
  std::string Take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// A reader of what ByteWriter wrote. Reads past the end give zeros and are remembered.
class ByteReader {
 public:
  explicit ByteReader(absl::string_view bytes) : rest_(bytes) {}

  std::int64_t Number() {
    std::int64_t value = 0;
    const absl::string_view bytes = Take(sizeof(value));
    if (!bytes.empty()) std::memcpy(&value, bytes.data(), sizeof(value));
    return value;
  }
  absl::string_view Bytes() { return Take(Number()); }
  bool complete() const { return !overrun_ && rest_.empty(); }
  bool overrun() const { return overrun_; }

 private:
  absl::string_view Take(std::int64_t count) {
    if (count < 0 || static_cast<std::size_t>(count) > rest_.size()) {
      overrun_ = true;
      rest_ = {};
      return {};
    }
    const absl::string_view taken = rest_.substr(0, static_cast<std::size_t>(count));
    rest_.remove_prefix(static_cast<std::size_t>(count));
    return taken;
  }

  absl::string_view rest_;
  bool overrun_ = false;
};

}  // namespace tutti

#endif  // TUTTI_SYNC_BYTE_STREAM_H_
