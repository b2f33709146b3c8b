// The layout of what travels on a wire (wire.h): headers of 32 bytes, each followed by its payload, in the byte order
// of the machines, which all ranks of a world share.
#ifndef TUTTI_TRANSPORTS_UCX_WIRE_FRAME_H_
#define TUTTI_TRANSPORTS_UCX_WIRE_FRAME_H_

#include <cstdint>

namespace tutti::ucx {

struct FrameHeader {
  enum class Kind : std::uint32_t {
    kPayload = 0x31575454,  // "TTW1": a part of a message
    kMatched = 0x32575454,  // "TTW2": the payload is numbers of messages that the frame's sender has matched
  };
  Kind kind = Kind::kPayload;
  std::uint32_t number = 0;  // kPayload: of the message, counted by its sender
  std::int64_t bytes = 0;    // kPayload: of the whole message
  std::int64_t offset = 0;   // kPayload: of the payload in the message
  std::int64_t length = 0;   // of the payload
};
static_assert(sizeof(FrameHeader) == 32);

}  // namespace tutti::ucx

#endif  // TUTTI_TRANSPORTS_UCX_WIRE_FRAME_H_
