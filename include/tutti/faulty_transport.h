// A transport that injects faults: it wraps another transport and loses, delays, damages and slows its messages as a
// bad network does, or dies as a bad machine does. Faults are for tests of programs that must survive them;
// docs/fault_injection.md tells how each fault ends.
#ifndef TUTTI_FAULTY_TRANSPORT_H_
#define TUTTI_FAULTY_TRANSPORT_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tutti/transport.h"

namespace tutti {

// The kinds of faults, by what each does to a message: to one Send from a rank to another rank. Faults do not reach
// messages of a rank to itself, what a transport itself exchanges (greetings, goodbyes, the causes of errors), or
// memory that peers have mapped. A communicator with CommunicatorOptions::Mapping::kNever does everything by messages.
enum class FaultKind : std::uint8_t {
  // The message is lost: its Send ends OK, and its Recv never ends by itself.
  kDrop,
  // From this message on, the rank's messages to that peer are lost, as kDrop loses one; the other direction works.
  kHalfOpen,
  // The message leaves later, after a drawn time of at most `delay`. Later messages may overtake it.
  kDelay,
  // The message leaves after the next one that leaves for the same peer; after `delay` if none does.
  kReorder,
  // Messages leave one after the other at `bytes_per_second` (0: at once), and each takes `delay` more to arrive. The
  // Send of a message ends when the message has left: messages that queue are unfinished Sends of the caller, and
  // nothing is copied.
  kSlow,
  // The message arrives twice; the second copy is never received, because a transport delivers a message once. All
  // ranks must be given equal FaultPlans. A copy takes memory until Shutdown.
  kDuplicate,
  // One drawn bit of the message is flipped; an empty message stays as it is. Only code that looks at the contents can
  // notice.
  kCorrupt,
  // A drawn number of bytes (at least one) is cut off the end; an empty message stays as it is. The Recv of the message
  // ends with InvalidArgument that names both lengths.
  kTruncate,
  // The rank dies instead of posting its message: without a goodbye, so that its peers' Check lists the rank with
  // Unavailable. See FaultPlan::kills_process. The dead rank's own unfinished and later operations end with
  // Unavailable.
  kKill,
};

inline constexpr Rank kEveryRank = -1;
inline constexpr std::int64_t kAtConnect = -1;

// One fault: what happens to which messages. The fault hits messages from rank `from` to rank `to` whose number is in
// [first, last], each with probability `chance`. A rank numbers its messages to each peer from 0, in the order of its
// Sends.
//
// For kKill, `from` is the rank that dies, and the number counts all Sends and Recvs that this rank posts, to and from
// any peer; `first` may be kAtConnect: the rank dies as soon as it is connected.
struct Fault {
  FaultKind kind = FaultKind::kDrop;
  Rank from = kEveryRank;
  Rank to = kEveryRank;
  std::int64_t first = 0;
  std::int64_t last = std::numeric_limits<std::int64_t>::max();
  double chance = 1;
  absl::Duration delay = absl::ZeroDuration();  // for kDelay, kReorder and kSlow
  double bytes_per_second = 0;                  // for kSlow
};

// A fault that has happened to message `number` from rank `from` to rank `to` (kKill: `to` is kEveryRank).
struct FaultEvent {
  FaultKind kind = FaultKind::kDrop;
  Rank from = 0;
  Rank to = 0;
  std::int64_t number = 0;

  bool operator==(const FaultEvent&) const = default;
};

// The faults of a world. Random choices depend only on the seed, the fault's place in the list, the two ranks and the
// message's number, so every run with the same messages has the same faults. A message that several faults hit suffers
// all of them.
struct FaultPlan {
  std::uint64_t seed = 0;
  std::vector<Fault> faults;
  // True: kKill sends SIGKILL to this process. False, for ranks that are threads: kKill shuts the rank's transport down
  // in a way that tells the peers that the rank died.
  bool kills_process = false;
  // A function that is told of every fault, by the thread that posts the message (ranks that are threads share one
  // function); may be null. The function must call nothing of the transport.
  std::function<void(const FaultEvent&)> on_fault = nullptr;
};

// Wraps `inner`, the transport of one rank, which is not connected yet. Ranks with and without faults can be in one
// world. InvalidArgument names the field of the plan that makes no sense.
absl::StatusOr<std::unique_ptr<Transport>> MakeFaultyTransport(std::unique_ptr<Transport> inner, FaultPlan plan);

}  // namespace tutti

#endif  // TUTTI_FAULTY_TRANSPORT_H_
