// Frames of the TCP store after the handshake: length (4 bytes), MAC (32 bytes), body. The MAC covers the number of the
// frame, its length and its body, under the key of one direction of one connection: a frame that is injected, changed,
// repeated, left out or sent back is found out.
#ifndef TUTTI_STORE_FRAME_H_
#define TUTTI_STORE_FRAME_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "store/mac.h"
#include "tutti/store.h"

namespace tutti {

inline constexpr std::size_t kFrameHeaderBytes = 4 + 32;
// The bytes of the largest body: a Set of the longest key and value.
inline constexpr std::size_t kMaxFrameBytes = kMaxKeyBytes + kMaxValueBytes + 64;

class FrameWriter {
 public:
  explicit FrameWriter(const Key& key) : key_(key) {}
  // The frame of `body`, which has at most kMaxFrameBytes bytes. With `rest` the body goes on with it, and the caller
  // sends `rest` behind what Seal returns.
  std::string Seal(absl::string_view body, absl::string_view rest = "");

 private:
  Key key_;
  std::uint64_t sequence_ = 0;
};

class FrameReader {
 public:
  explicit FrameReader(const Key& key) : key_(key) {}
  void Append(absl::string_view bytes) { buffer_.append(bytes.data(), bytes.size()); }
  // The body of the next frame, or nothing when more bytes are needed. DataLoss when the frame is too long or its MAC
  // is wrong; the connection cannot be used after that.
  absl::StatusOr<std::optional<std::string>> Next();

 private:
  Key key_;
  std::uint64_t sequence_ = 0;
  std::string buffer_;
  std::size_t consumed_ = 0;
};

}  // namespace tutti

#endif  // TUTTI_STORE_FRAME_H_
