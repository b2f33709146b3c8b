// A transport moves messages between the ranks of one world and owns the memory region of its rank, which peers on the
// same node can map.
#ifndef TUTTI_TRANSPORT_H_
#define TUTTI_TRANSPORT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "tutti/dtype.h"

namespace tutti {

// The callback for the end of one Send or Recv. `done` is called exactly once, from inside Progress, Drain, CallEnded
// or Shutdown, never from the call that posted the message. A Completion is a plain struct that its owner embeds; the
// owner keeps it, and the message's memory, alive until `done` is called. `done` may call Send and Recv (they end in a
// later one of these calls), but no other function of the transport.
struct Completion {
  void (*done)(Completion* self, const absl::Status& status) = nullptr;
  // The rank whose message a RecvFromAny takes, written once that rank is known and before `done` is called; until
  // then, and where there was no message, what the owner of the completion has written.
  Rank source = kAnySource;
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

  // Sends a message of `bytes` (≥ 0) to the peer, whose Recv (or RecvFromAny) with an equal tag receives the message. A
  // tag has kTagBits bits. Messages of one tag between two ranks match in the order in which they were posted, whatever
  // their lengths.
  virtual void Send(std::uint64_t tag, const void* data, std::int64_t bytes, Completion* completion) = 0;
  // Receives a message of exactly `bytes`; any other length ends with InvalidArgument that names both lengths. After
  // such an error the contents of `data` are undefined. The message may be sent before or after Recv is called.
  virtual void Recv(std::uint64_t tag, void* data, std::int64_t bytes, Completion* completion) = 0;

  // The peer's region, mapped into this process since Connect; base == nullptr when the peer's memory cannot be mapped.
  virtual MappedRegion region() const = 0;

  // Whether this rank can read the memory of the peer's process beyond its region, which ReadProcess does. Known from
  // Connect on. A transport that reads no process inherits this one.
  virtual bool reads_process() const { return false; }
  // Copies `bytes` bytes (≥ 1), which lie at `place` in the peer's process, to `to`; `reads_process` holds. False: they
  // could not be read, because the peer has ended, has no memory there or forbids it meanwhile, and `to` holds
  // anything; unless the peer has said goodbye, Check then reports its loss. Where `is_lent` says, after a copy that
  // has failed, that the peer no longer lends the memory, a failure is no fault of a peer that lives, and not reported.
  // The copy of memory that the peer changes meanwhile is undefined. Takes as long as the copy.
  virtual bool ReadProcess(void* /*to*/, std::uint64_t /*place*/, std::int64_t /*bytes*/,
                           absl::FunctionRef<bool()> /*is_lent*/) {
    return false;
  }

  // Ends the peer's Sleep, or its next one, as the peer's own Wake does; nothing happens where the peer's memory cannot
  // be mapped. For a rank that has written to mapped memory what a peer, asleep in its transport, waits for.
  virtual void Wake() = 0;
};

inline constexpr int kTagBits = 48;
// The upper bits of a tag name a group of ranks, by the number that the receiver has given the group; the other bits
// number the messages of that group.
inline constexpr int kGroupShift = 29;
constexpr std::uint32_t GroupOf(std::uint64_t tag) { return static_cast<std::uint32_t>(tag >> kGroupShift); }

// A peer that this rank has lost: from now on no message comes from the peer or goes to it.
struct Loss {
  Rank peer = 0;
  // Unavailable that names the peer, or the cause with which the peer shut down (the code of that cause; its text ends
  // with "(told by rank N)"), or what Disconnect was told.
  absl::Status cause;
};

// What a peer has told this rank: that a group which both are in has failed, or, with an OK cause, that the peer has
// left the group.
struct Note {
  Rank from = 0;
  std::uint32_t group = 0;  // the number that this rank has given the group; the peer's word, it may be any number
  absl::Status cause;       // the peer's own words
};

// No function waits without an end, whatever the peers do or fail to do: each names its bound.
//
// Threads: one thread at a time calls the functions of a transport and its endpoints (the engine's driver, which may
// move between threads); Wake may be called by any thread at any time between Connect and Shutdown, and Endpoint::Wake
// until the destruction of the transport.
//
// A forked child may call only Shutdown and the destructor of its parent's transports; in the child they reach no peer
// and end no message, because the messages are the parent's. Every descriptor that a transport has opened is
// close-on-exec.
class Transport {
 public:
  virtual ~Transport() = default;

  virtual absl::string_view name() const = 0;

  // The region that belongs to this rank: zero at first, mapped by the peers on this node after Connect, resident only
  // where touched. Valid from creation until destruction.
  virtual MappedRegion region() const = 0;

  // What peers need in order to connect: an opaque blob, carried by the (authenticated) store.
  virtual absl::StatusOr<std::string> Address() = 0;

  // Connects this rank to all ranks of the world; `addresses` is in rank order and contains this rank's own. Returns by
  // `deadline`. Unavailable or DeadlineExceeded name the rank that could not be reached. A Connect that waits asks
  // `watch` several times a second, on the calling thread, whether to go on: with an error of `watch`, such as the news
  // that another rank has given up, Connect ends and returns that error.
  using ConnectWatch = absl::FunctionRef<absl::Status()>;
  virtual absl::Status Connect(Rank rank, absl::Span<const std::string> addresses, absl::Time deadline,
                               ConnectWatch watch) = 0;
  absl::Status Connect(Rank rank, absl::Span<const std::string> addresses, absl::Time deadline) {
    return Connect(rank, addresses, deadline, [] { return absl::OkStatus(); });
  }

  // The way to `peer`, or to this rank itself; valid from Connect until the destruction of the transport.
  virtual Endpoint& endpoint(Rank peer) = 0;

  // Whether a peer whose Endpoint::reads_process holds can read the `bytes` bytes (≥ 1) at `data`: memory of a device,
  // for example, is refused to other processes. Tried at the first and the last byte. A transport that reads no process
  // inherits this one.
  virtual bool ShowsToPeers(const void* /*data*/, std::int64_t /*bytes*/) const { return false; }

  // Receives as Endpoint::Recv does, but from any rank, this one included. Of several receives that a message could
  // match, from its sender or from any rank, the one that was posted first takes the message. The receive ends with a
  // message, by Discard, or by Shutdown: not with the loss of a peer, unless that peer's message has begun to arrive.
  virtual void RecvFromAny(std::uint64_t tag, void* data, std::int64_t bytes, Completion* completion) = 0;

  // Moves messages and calls completions; true when any was called, or a part of a message was copied whose rest the
  // next call copies. Takes a bounded part of what has arrived (UCX: at most 112 KB of each socket, 512 KB from mapped
  // memory or a rank on another node, and 8 MB that came from there before its receive was posted; in one process: what
  // came before the call), for one that comes again at once.
  virtual bool Progress() = 0;
  // Progress for a caller that calls seldom: takes all that has arrived, but works for 10 ms at most while peers go on
  // sending. A transport whose Progress takes all that has arrived inherits this one.
  virtual bool Drain() { return Progress(); }
  // Calls the completions of messages that have ended, as a short one does while it is posted; true when it has called
  // any. CallEnded looks for nothing that has come, and so costs no call of the kernel. Nobody has to call it. A
  // transport whose messages all end under Progress inherits this one.
  virtual bool CallEnded() { return false; }
  // Whether something lies on this rank for which no Send waits, and which leaves under Progress alone: a part of a
  // message whose Send has ended, or what this rank has told (Tell). Until it has left, somebody must alternate Sleep
  // and Progress, or the peer waits for it. Cheap. A transport in which nothing lies so inherits this one.
  virtual bool HoldsSent() { return false; }

  // Returns when Progress has something to do, when Check may have news, after Wake or Endpoint::Wake of a peer, or at
  // `until`, whichever is first; may return early. A Wake before the call counts. Never spins: where a transport cannot
  // be told when it has something to do (UCX, while messages wait for a peer that takes none), Sleep lasts a
  // millisecond at most. Messages move only under Progress and Drain: a rank that waits for anything else must keep
  // alternating Sleep with one of them, or its peers wait for it.
  virtual void Sleep(absl::Time until) = 0;
  virtual void Wake() = 0;

  // The peers lost so far, in the order in which they were found: one that died (Unavailable that names it), one that
  // shut down with an error, and one that Disconnect was called for. The list grows at its end only, and is valid until
  // the next call of the transport. Waits for nothing, and reads a bounded number of each peer's messages. Cheap enough
  // to be called every few milliseconds, not for every step. Finds the death of a peer on this node within 100 ms of
  // the call, also when no message is under way to it. A peer that hangs (SIGSTOP) is not found: deadlines are the
  // engine's. Every unfinished message with a peer on the list ends with the peer's `cause` at a later Progress, and so
  // does every message with it that is posted afterwards. One exception: a Recv whose message has begun to arrive, from
  // a peer of this node that still lives, ends when the rest of the message arrives, or by Shutdown.
  virtual absl::Span<const Loss> Check() = 0;

  // Gives `peer` up: it joins the list of Check with `cause`, unless it is there. Meant for a peer that takes nothing
  // for so long that what was sent to it must be taken back; not to be called for this rank itself.
  virtual void Disconnect(Rank peer, const absl::Status& cause) = 0;

  // How many bytes of long messages of all groups, and of answers to these, the network has taken for `peer` or has
  // brought from there: the number grows as long as any move. 0 where the transport cannot tell.
  virtual std::int64_t BytesMovedWith(Rank /*peer*/) const { return 0; }

  // Gives the receives of the group `group` up, by the number in their tags: an unfinished Recv ends with Cancelled at
  // a later Progress (one whose message has begun to arrive from this node: when that has arrived, or its peer is
  // lost), and a message that comes for the group, before or after this call, is thrown away, so that the Send of the
  // peer ends. Discard, Drain and Check throw messages away. The transport remembers the last kMaxDiscarded groups. No
  // Recv of the group is posted until Accept.
  static constexpr std::size_t kMaxDiscarded = 4096;
  virtual void Discard(std::uint32_t group) = 0;
  // The number `group` is about to name another group: messages that have come for it are thrown away, those that come
  // from now on are kept.
  virtual void Accept(std::uint32_t group) = 0;

  // Tells `peer` that the group to which the peer has given the number `group` has failed, in words that may be cut to
  // 512 bytes; with an OK cause, that this rank has left the group. Waits for nothing. The note is lost where the peer
  // is lost.
  virtual void Tell(Rank peer, std::uint32_t group, const absl::Status& cause) = 0;
  // The next note that a peer has told this rank, in the order of their coming; nullopt: none. Notes are taken in by
  // Progress, Drain, Sleep and HasLeft. A transport keeps the last kMaxNotes that nobody has taken.
  static constexpr std::size_t kMaxNotes = 4096;
  virtual std::optional<Note> TakeNote() = 0;

  // True once `peer` has said goodbye (its Shutdown with OK) and all that it had sent to this rank has arrived here: a
  // Recv from it that is unfinished now never ends well. Stays true, also when the process of `peer` dies later. False
  // for a peer that aborted or died, which Check reports, and for this rank itself. Takes in what has arrived, as Drain
  // does and in as much time, but calls no completion. Cheap enough to be called every few milliseconds.
  virtual bool HasLeft(Rank peer) = 0;
  // Whether a Recv has met a message of `peer` that is still on its way. Says so of messages that can come later than
  // what their sender then tells (Tell, or mapped memory); a transport without such messages inherits this one.
  virtual bool IsReceivingFrom(Rank /*peer*/) const { return false; }

  // The next three functions are for a rank whose call is about to fail because of a peer whose memory is not mapped
  // here: they ask that peer which rank it waits for in turn.
  //
  // Sets where answers come from: from now on a peer that asks is told what `waits_for` holds when the question is
  // taken in, a rank of the world, or -1 when this rank waits for nobody. Questions are taken in by Progress, Drain and
  // HasLeft: a rank that computes, is stopped or has shut down answers nothing. The caller keeps `waits_for` alive
  // until Shutdown. Before the first call, peers are answered with -1.
  virtual void ShowWaitsFor(const std::atomic<Rank>* waits_for) = 0;
  // Asks `peer`, and forgets its last answer. Waits for nothing. Not to be called again for this peer before it has
  // answered.
  virtual void AskWaitsFor(Rank peer) = 0;
  // The answer of `peer`; nullopt while there is none. The answer is the peer's word: it may be any number.
  virtual std::optional<Rank> WaitsFor(Rank peer) = 0;

  // True once no code of `peer` runs any more that could touch memory: its process has ended, as far as is known here,
  // or it has shut down. Waits for nothing. False where the end of `peer` is not known.
  virtual bool HasEnded(Rank peer) = 0;

  // Takes [data, data + bytes), a part of this rank's region, out of the peers' reach for good: this process keeps the
  // contents at the same addresses, and what a peer writes there after the return no longer arrives here. Seclude is
  // for a peer that was stopped in the middle of a copy, which it may go on with long after everybody has given up on
  // it. Works on whole pages: whatever else lies on the first and the last page of the range leaves the peers' reach
  // too and keeps its contents. Peers that still read there see the old contents. Costs as much memory again, and the
  // time of copying the range; no thread of this process may write to these pages meanwhile. InvalidArgument when the
  // range is not within the region, ResourceExhausted when there is no memory; Unimplemented when the peers are threads
  // of this process, from which no memory can be withdrawn.
  virtual absl::Status Seclude(std::byte* data, std::int64_t bytes) = 0;

  // Ends every unfinished Send and Recv with `cause` and tells the peers, whose Check then lists this rank. An OK cause
  // is an orderly goodbye, after which peers do not take this rank for dead. A message whose Send has ended before is
  // still received; only a peer on another node that takes nothing for as long as Shutdown lasts loses such messages,
  // and takes this rank for dead. A Send of a message that a peer of this node copies from this rank's region (docs/
  // decisions/0024) ends when the peer has copied it. Sends and Recvs that are unfinished here, and Sends of peers to
  // this rank, end with Unavailable. Takes at most two seconds, whatever the peers do (in one process: or as long as
  // one copy that a peer is making); a goodbye takes so long only where a peer does not take what was sent to it.
  // Messages posted after Shutdown, and by completions that it calls, end with the same error at the next Progress.
  // Safe to call again (no effect). The destructor calls Shutdown with Unavailable if nobody has called it.
  virtual void Shutdown(const absl::Status& cause) = 0;
};

struct TransportOptions {
  // Bytes of this rank's region: address space, not memory, which is used only where touched.
  std::int64_t region_bytes = std::int64_t{16} << 30;
};

// The in-process transport, whose ranks are threads: the reference for all others. All ranks of a world are made from
// one hub. `ranks_per_node` consecutive ranks act as a node and map each other's memory; 0: all ranks do.
// MakeInprocTransport: FailedPrecondition when the hub has its `size` ranks already, InvalidArgument when `hub` is null
// or options.region_bytes < 1, ResourceExhausted when there is no address space for the region.
class InprocHub;
std::shared_ptr<InprocHub> MakeInprocHub(int size, int ranks_per_node = 0);
absl::StatusOr<std::unique_ptr<Transport>> MakeInprocTransport(std::shared_ptr<InprocHub> hub,
                                                               const TransportOptions& options);

// The UCX transport: mapped memory and UCX's shared memory between processes (or threads) of one node, TCP connections
// between nodes, and for messages between containers of a node that do not share /dev/shm, System V memory and process
// numbers. While ranks connect, it listens at `interface`, for ranks that know its address (docs/security.md).
struct UcxOptions {
  // Network device such as "eth0"; empty: loopback.
  std::string interface;
  // Ranks with equal node names map each other's memory; empty: the machine's boot id.
  std::string node;
  // TCP connections with each rank on another node (or in such a container), 1 to 64, over which the payload of longer
  // messages is spread: more than one where a single connection does not fill the network. Shorter messages have one
  // connection more.
  int connections = 1;
};
absl::StatusOr<std::unique_ptr<Transport>> MakeUcxTransport(const UcxOptions& ucx, const TransportOptions& options);

}  // namespace tutti

#endif  // TUTTI_TRANSPORT_H_
