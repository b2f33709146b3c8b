// The layout of what travels on a short wire (short_wire.h): headers of 24 bytes, each followed by its payload, in the
// byte order of the machines, which all ranks of a world share.
#ifndef TUTTI_TRANSPORTS_UCX_SHORT_FRAME_H_
#define TUTTI_TRANSPORTS_UCX_SHORT_FRAME_H_

#include <cstdint>

#include "transports/ucx/control.h"
#include "tutti/transport.h"

namespace tutti::ucx {

// The most bytes of a message that a short wire carries; the payload of longer ones goes over the wire. A piece of 64
// KiB is short, also with what a codec adds to it: an announcement would be half of the packets that the piece takes.
inline constexpr std::int64_t kMaxShort = (66 << 10) - 1;

struct ShortHeader {
  enum class Kind : std::uint32_t {
    kWhole = 0x31535454,      // "TTS1": the payload is a message
    kAnnounced = 0x32535454,  // "TTS2": no payload; the message comes over the wire
    kControl = 0x33535454,    // "TTS3": the payload is a ControlFrame
  };
  Kind kind = Kind::kWhole;
  std::uint32_t number = 0;  // kAnnounced: of the message on the wire, counted by its sender
  std::uint64_t tag = 0;     // kWhole and kAnnounced: of the message
  std::int64_t bytes = 0;    // of the message, or of the ControlFrame

  bool has_tag() const { return tag >> kTagBits == 0; }
  std::int64_t payload() const { return kind == Kind::kAnnounced ? 0 : bytes; }
  // Whether a peer that keeps the rules may have sent the header.
  bool is_valid() const {
    switch (kind) {
      case Kind::kWhole:
        return has_tag() && bytes >= 0 && bytes <= kMaxShort;
      case Kind::kAnnounced:
        return has_tag() && bytes > kMaxShort;
      case Kind::kControl:
        return bytes == sizeof(ControlFrame);
    }
    return false;
  }
};
static_assert(sizeof(ShortHeader) == 24);

}  // namespace tutti::ucx

#endif  // TUTTI_TRANSPORTS_UCX_SHORT_FRAME_H_
