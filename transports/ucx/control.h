// The few messages that ranks exchange beside payload: when they connect, say goodbye or abort. One fixed layout, sent
// over a node's sockets and, under a reserved tag, over UCX.
#ifndef TUTTI_TRANSPORTS_UCX_CONTROL_H_
#define TUTTI_TRANSPORTS_UCX_CONTROL_H_

#include <array>
#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "tutti/dtype.h"

namespace tutti::ucx {

struct Control {
  enum class Kind : std::uint32_t { kHello = 1, kSettled, kGoodbye, kGoodbyeSeen, kAbort };
  Kind kind = Kind::kHello;
  Rank from = 0;
  absl::Status cause;  // kAbort; its text is cut to kMaxCauseBytes
};

inline constexpr std::size_t kMaxCauseBytes = 512;

// magic, kind, from, code, length: 4 bytes each, little-endian as all machines that Tutti runs on; then the text.
using ControlFrame = std::array<char, 20 + kMaxCauseBytes>;

ControlFrame Encode(const Control& control);
// Empty unless `bytes` bytes at `data` are a whole, valid frame. Trusts nothing in it.
std::optional<Control> Decode(const char* data, std::size_t bytes);

}  // namespace tutti::ucx

#endif  // TUTTI_TRANSPORTS_UCX_CONTROL_H_
