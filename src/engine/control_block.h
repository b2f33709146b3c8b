// What a rank publishes to peers that map its region: signals, where its buffers are, what it has called, why one of
// its channels failed, and whether it sleeps.
//
// Who may write and who may reuse
//   A control block and a presence are written by their owner, but for the fields that say otherwise. Peers may read
//   both at any time, also after the owner has destroyed the communicator: the memory of a control block is therefore
//   only ever used for control blocks, and nothing in it is set back while a peer may wait for it.
//   A block serves one channel at a time. The block's owner closes it when the channel ends, and opens it for another
//   channel when every peer of the old one has completed all runs that the owner has, or has closed its own block: such
//   a peer reads nothing of the block any more but `generation` and `completed`. After a channel for GPUs, whose runs
//   on streams peers do not tell as completed, every peer must have closed its own block.
#ifndef TUTTI_ENGINE_CONTROL_BLOCK_H_
#define TUTTI_ENGINE_CONTROL_BLOCK_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "plan/limits.h"

namespace tutti {

// Collectives of one channel that may be under way at the same time; call number s runs on lane s mod kLanes.
inline constexpr int kLanes = 4;
// Scratch that a run finds in its lane, so that small collectives need no memory of their own.
inline constexpr std::int64_t kLaneScratchBytes = 64 << 10;

// The bytes of scratch that lie beside an announcement.
inline constexpr std::int64_t kShortScratchBytes = 64;

// One cache line, written by its owner only: the signal of a run, and with it everything a peer needs to know about
// the run. Peers read the other fields only after they have seen the signal.
struct alignas(64) Announcement {
  // In place of an offset: peers may not touch this memory, or there is none.
  static constexpr std::int64_t kNotLent = -1;
  // In place of the offset of the output: the buffers lie where peers cannot map them, and are not staged whole. In
  // place of the offset of the input then stands what peers copy from: see PlaceInProcess.
  static constexpr std::int64_t kPrivateBuffers = -2;
  // An address in the owner's process, in place of an offset, is below all of these: its complement.
  static std::int64_t PlaceInProcess(const std::byte* address) {
    return ~static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(address));
  }
  static bool IsInProcess(std::int64_t place) { return place < kPrivateBuffers; }

  std::atomic<std::uint64_t> signal{0};  // the run of the lane << 16 | the signals made in that run
  std::int64_t in = 0;                   // in, out, scratch: where the buffers lie, by offset in the owner's region
  std::int64_t out = 0;
  std::int64_t scratch = 0;
  std::uint64_t signature = 0;  // what was called: see Program::signature
  std::int64_t count = 0;
  std::uint64_t round = 0;  // CallOptions::round
  std::uint32_t owner = 0;  // CallOptions::owner
  // Where `signal` says kRefused: the rank of the group that cannot take part in the call.
  std::atomic<std::int32_t> refused_by{-1};
};
static_assert(sizeof(Announcement) == 64);
// In place of the number of signals: the owner takes no further step of this run, which ends on every rank with an
// error of its own while the group goes on.
inline constexpr std::uint64_t kRefused = 0xffff;
static_assert(kMaxSignals < kRefused);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

// Runs alternate between two halves of their lane: a peer may still read the announcement and the scratch of run i
// while this rank is in run i + 1; run i + 2 waits until every peer has completed run i.
//
// The scratch of a run that needs no more than a cache line of it lies beside its announcement: processors that fetch
// lines in pairs bring it along when they fetch the announcement.
struct alignas(128) LaneHalf : Announcement {
  std::array<std::byte, kShortScratchBytes> scratch;
};

// What the owner tells of a lane beside the announcements of its runs.
struct LaneControl {
  alignas(64) std::atomic<std::uint64_t> completed{0};  // runs of this lane that the owner has completed
  // The offset of the scratch of a run in which the owner has gone over to the program for private buffers (see
  // Channel::GoOver), written before the next signal. The announcement keeps the first offset, which a slow peer may
  // not have read yet.
  std::array<std::int64_t, 2> scratch_gone_over{};
};

// What the owner called, for a peer that has waited long and asks why: also calls that signal to nobody have a record.
// A reader looks at `number` before and after the rest, since `number` changes while the rest is written.
struct alignas(64) CallRecord {
  std::atomic<std::uint64_t> number{0};  // the call's number in its channel, from 1; 0: none, or being written
  std::atomic<std::uint64_t> signature{0};
  std::atomic<std::int64_t> count{0};
  std::atomic<std::uint64_t> round{0};
  std::atomic<std::uint32_t> owner{0};
};

// The last calls of a channel that a rank remembers.
inline constexpr std::size_t kCallRecords = 128;

// The messages on streams that a rank remembers.
inline constexpr std::size_t kMessageRecords = 256;

// A message that the owner has sent, or received, on its stream, in a call of which its peers know by the message
// alone. Read as a CallRecord is.
struct MessageRecord {
  std::atomic<std::uint64_t> number{0};  // among those to, or from, one peer, from 1; 0: none, or being written
  std::atomic<std::int64_t> bytes{0};
};

// Why the owner has given a channel up.
struct FailureCause {
  static constexpr std::size_t kMaxBytes = 1000;  // the longest text; a longer one is cut

  // Generation of the block << 32 | absl::StatusCode; 0: never. Written last, before any peer is told.
  std::atomic<std::uint64_t> code{0};
  std::uint32_t bytes = 0;
  std::array<char, kMaxBytes> text{};
};

// What a rank publishes about one of its channels.
struct ControlBlock {
  // By lane. Peers read these lines again and again while they wait. What the owner writes in every call, and peers
  // read seldom, lies on other pages: a processor that reads line after line also fetches the next lines of the page,
  // and so would take them from the owner.
  std::array<std::array<LaneHalf, 2>, kLanes> halves;
  std::array<std::byte, 4096> gap;
  std::array<LaneControl, kLanes> lanes;
  // Even while a channel uses the block, odd from its closing on; grows by one at every opening and closing.
  alignas(64) std::atomic<std::uint64_t> generation{0};
  alignas(64) std::atomic<std::uint64_t> calls{0};  // collectives that the owner has begun in this channel
  std::array<CallRecord, kCallRecords> records;
  std::array<MessageRecord, kMessageRecords> messages;  // which has which place: Channel::MessageRecordIn
  // Generation of the block << 32 | rank of the group + 1: written by a peer that gives the channel up, before the peer
  // gives the memory of its calls back, unless a value of this or a later generation stands here. From then on no step
  // of the owner touches that peer's memory, but to read scratch, and no call of the channel ends OK on the owner.
  alignas(64) std::atomic<std::uint64_t> failed_by{0};
  FailureCause failure;
  alignas(64) std::array<std::array<std::byte, kLaneScratchBytes>, 2 * kLanes> scratch;
};

inline constexpr std::uint32_t kAwake = 0;
inline constexpr std::uint32_t kAwaitsNews = 1;         // waits for a signal or a submission
inline constexpr std::uint32_t kAwaitsCompletions = 2;  // waits also until a peer completes a run

// What a rank publishes about itself, at the start of its region.
struct Presence {
  // While `sleeping` is not kAwake the rank sleeps, or is about to. A peer that makes a signal then rings, that is,
  // counts `doorbell` up and wakes the rank; a peer that completes a run rings where `sleeping` is kAwaitsCompletions.
  alignas(64) std::atomic<std::uint32_t> sleeping{kAwake};
  std::atomic<std::uint32_t> doorbell{0};
  // Where the rank sleeps: not 0 in its transport, where it waits for messages and news at once; otherwise on
  // `doorbell`, or, when it waits for messages alone, in its transport, without being rung.
  std::atomic<std::uint32_t> sleeps_in_transport{0};
  // Written only by a rank that waits. The first two serve the diagnosis of a hang, and are written at least every
  // kRestSlice.
  alignas(64) std::atomic<std::int64_t> heartbeat_ns{0};  // the time of the last heartbeat; CLOCK_MONOTONIC
  std::atomic<std::int32_t> waits_for{-1};                // the rank of the world for which this rank waits; -1: none
  std::atomic<std::int32_t> processor{-1};                // the processor on which this rank waited last; -1: none
  // Odd while a step of this rank may touch a peer's memory in another way than to read scratch; grows by one when such
  // a step begins and when it ends. A step looks at ControlBlock::failed_by after it has begun, and a peer that gives
  // the channel up looks at this number after it has written there: one of them sees the other.
  alignas(64) std::atomic<std::uint32_t> touching{0};
  // The engine thread sleeps on this word while nothing is to do. Whoever has work or news for the thread counts it up.
  alignas(64) std::atomic<std::uint32_t> thread_calls{0};
};

}  // namespace tutti

#endif  // TUTTI_ENGINE_CONTROL_BLOCK_H_
