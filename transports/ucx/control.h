// Control messages: the few messages that ranks exchange beside payload, when they connect, say goodbye or abort, when
// they ask each other for whom they wait, when they tell each other that a group has failed or that they have left a
// group, and when they have taken an announced message. All have one fixed layout, and are sent over a node's sockets,
// within a node also over UCX, under a reserved tag, and between nodes over short wires.
#ifndef TUTTI_TRANSPORTS_UCX_CONTROL_H_
#define TUTTI_TRANSPORTS_UCX_CONTROL_H_

#include <array>
#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "tutti/dtype.h"

namespace tutti::ucx {

struct Control {
  enum class Kind : std::uint32_t {
    kHello = 1,
    kSettled,
    kGoodbye,
    kGoodbyeSeen,
    kAbort,
    kAsks,
    kAnswers,
    kNote,
    kTaken
  };
  Kind kind = Kind::kHello;
  Rank from = 0;
  absl::Status cause;       // kAbort, kNote; its text is cut to kMaxCauseBytes
  bool reads = false;       // kHello: the sender can read the memory of the receiver's process (process_memory.h)
  Rank waits_for = -1;      // kAnswers: the rank that the sender waits for; -1: nobody
  std::uint32_t group = 0;  // kNote: the receiver's number of the group that has failed, or that the sender has left
  // kTaken: the number of the announced message that the sender has taken (announced.cc). kGoodbye: how many messages
  // the sender has given its wire to the receiver (wire.h).
  std::uint32_t message = 0;
};

inline constexpr std::size_t kMaxCauseBytes = 512;
// The most control messages that one rank sends to another over UCX, beside questions, answers, notes and the news of
// taken messages: a greeting, the news that its connections are set up, a goodbye or the cause of an abort, and the
// news that it has seen a goodbye.
inline constexpr int kMaxControlsPerPeer = 4;

// A control message on the wire: magic, kind, from, value, number, length of the text (4 bytes each, little-endian like
// all machines that Tutti runs on), then the text. `value` is the status code of the cause of kAbort and kNote, the
// `waits_for` of kAnswers, or the `reads` of kHello; otherwise 0. `number` is the `message` of kTaken and kGoodbye,
// otherwise the `group`. Only a cause has a text.
using ControlFrame = std::array<char, 24 + kMaxCauseBytes>;

ControlFrame Encode(const Control& control);
// Decodes a frame; nullopt unless the `bytes` bytes at `data` are a whole, valid frame. Checks every field.
std::optional<Control> Decode(const char* data, std::size_t bytes);

}  // namespace tutti::ucx

#endif  // TUTTI_TRANSPORTS_UCX_CONTROL_H_
