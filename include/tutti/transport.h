// The seam between plans and wires. A transport moves messages between the ranks of one world and owns the memory
// region of its rank, which peers on the same node can map.
#ifndef TUTTI_TRANSPORT_H_
#define TUTTI_TRANSPORT_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "tutti/dtype.h"

namespace tutti {

// Told when one Send or Recv has ended: exactly once, from inside Progress, Drain or Shutdown, never from the call
// that posted it. A plain struct that its owner embeds; the owner keeps it, and the message's memory, alive until then.
// `done` may call Send and Recv (they end in a later Progress), but no other function of the transport.
struct Completion {
  void (*done)(Completion* self, const absl::Status& status) = nullptr;
};

// Memory as this process sees it. `base` is page-aligned.
struct MappedRegion {
  std::byte* base = nullptr;
  std::int64_t bytes = 0;
};

// The way to one peer (or to this rank itself).
class Endpoint {
 public:
  virtual ~Endpoint() = default;

  // Sends `bytes` (≥ 0) to the peer; it matches the peer's Recv of the same tag. `tag` has kTagBits bits and is not in
  // use by another unfinished message of the same direction between the two ranks.
  virtual void Send(std::uint64_t tag, const void* data, std::int64_t bytes, Completion* completion) = 0;
  // Receives a message of exactly `bytes`; any other length ends with InvalidArgument that names both lengths. The
  // contents of `data` are then undefined. The message may be sent before or after Recv is called.
  virtual void Recv(std::uint64_t tag, void* data, std::int64_t bytes, Completion* completion) = 0;

  // The peer's region, mapped here since Connect; base == nullptr when the peer's memory cannot be mapped.
  virtual MappedRegion region() const = 0;
};

inline constexpr int kTagBits = 48;

// Threads: Send, Recv, Progress, Drain, Sleep, Check and Shutdown are called by one thread at a time (the engine's
// driver, which may move between threads); Wake may be called by any thread at any time between Connect and Shutdown.
class Transport {
 public:
  virtual ~Transport() = default;

  virtual absl::string_view name() const = 0;

  // The region that belongs to this rank: zero at first, mapped by the peers on this node after Connect, resident only
  // where touched. Valid from creation until destruction.
  virtual MappedRegion region() const = 0;

  // What peers need in order to connect: an opaque blob, carried by the (authenticated) store.
  virtual absl::StatusOr<std::string> Address() = 0;

  // Connects this rank to all ranks of the world; `addresses` is in rank order and contains this rank's own.
  // Unavailable or DeadlineExceeded name the rank that could not be reached.
  virtual absl::Status Connect(Rank rank, absl::Span<const std::string> addresses, absl::Time deadline) = 0;

  virtual Endpoint& endpoint(Rank peer) = 0;

  // Moves messages and calls completions; true when any was called. Who polls comes again at once, so it may take only
  // a part of what has arrived (UCX: 8 KB of each socket).
  virtual bool Progress() = 0;
  // The same for who comes seldom: takes all that has arrived. A transport whose Progress does so inherits this.
  virtual bool Drain() { return Progress(); }

  // Returns when Progress has something to do, when Check may have news, after Wake, or at `until`, whichever is first;
  // may return early. A Wake before the call counts. Never spins. Messages move only under Progress
  // and Drain: a rank that waits for something else keeps alternating one of them and Sleep, or its peers wait for it.
  virtual void Sleep(absl::Time until) = 0;
  virtual void Wake() = 0;

  // What is known to be wrong: Unavailable that names a dead rank, or the cause with which this rank or a peer aborted
  // (the code of that cause; its text ends with "(told by rank N)"); the first such error stays; else OK. Cheap enough
  // to be called every few milliseconds, not for every step. Finds the death of a peer on this node within 100 ms of
  // the call, also when no message is under way to it. A peer that hangs (SIGSTOP) is not found: deadlines are the
  // engine's. An error ends no message by itself: what is unfinished with a dead rank ends by Shutdown, or before that
  // with the error that Check returns.
  virtual absl::Status Check() = 0;

  // Ends every unfinished Send and Recv with `cause` and tells the peers, whose Check then returns it. With an OK
  // cause: an orderly goodbye, after which peers do not take this rank for dead; what was sent is still received;
  // messages that are unfinished on this rank, and sends of peers to it, end with Unavailable. Takes at most two
  // seconds. Posts made after it end with the same error at the next Progress. Safe to call again (no effect). The
  // destructor calls it with Unavailable if nobody has.
  virtual void Shutdown(const absl::Status& cause) = 0;
};

struct TransportOptions {
  // Size of this rank's region: address space, not memory, which is used only where touched.
  std::int64_t region_bytes = std::int64_t{16} << 30;
};

// Threads of one process as ranks: the reference transport. All ranks of a world are made from one hub. Memory of peers
// is mapped among each `ranks_per_node` ranks that follow each other, which act as a node; 0: among all.
class InprocHub;
std::shared_ptr<InprocHub> MakeInprocHub(int size, int ranks_per_node = 0);
absl::StatusOr<std::unique_ptr<Transport>> MakeInprocTransport(std::shared_ptr<InprocHub> hub,
                                                               const TransportOptions& options);

// UCX: shared memory and TCP between processes (or threads), on one node or several. Listens on loopback only unless
// `interface` names another network device: UCX's TCP port has no authentication (docs/security.md).
struct UcxOptions {
  // Network device such as "eth0"; empty: loopback.
  std::string interface;
  // Ranks with equal node names map each other's memory; empty: the machine's boot id.
  std::string node;
};
absl::StatusOr<std::unique_ptr<Transport>> MakeUcxTransport(const UcxOptions& ucx, const TransportOptions& options);

}  // namespace tutti

#endif  // TUTTI_TRANSPORT_H_
