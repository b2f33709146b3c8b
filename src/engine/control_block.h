// What a rank publishes to peers that map its region: signals, where its buffers are, and whether it sleeps.
// All of it is zero at first, which is how a region starts.
#ifndef TUTTI_ENGINE_CONTROL_BLOCK_H_
#define TUTTI_ENGINE_CONTROL_BLOCK_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tutti {

// Collectives of one channel that may be under way at the same time; call number s runs on lane s mod kLanes.
inline constexpr int kLanes = 4;
// Scratch that a run finds in its lane, so that small collectives need no memory of their own.
inline constexpr std::int64_t kLaneScratchBytes = 64 << 10;

// One cache line, written by its owner only: the signal of a run, and with it everything a peer needs to know about
// the run. Peers read the other fields only after they have seen the signal.
struct alignas(64) Announcement {
  std::atomic<std::uint64_t> signal{0};  // run of the lane << 16 | signals made in that run
  std::int64_t in = 0;                   // offsets in the owner's region
  std::int64_t out = 0;
  std::int64_t scratch = 0;
  std::uint64_t signature = 0;  // what was called: see Program::signature
  std::int64_t count = 0;
};
static_assert(sizeof(Announcement) == 64);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

// Runs alternate between two halves of their lane: a peer may still read the announcement and the scratch of run i
// while this rank is in run i + 1; run i + 2 waits until every peer has completed run i.
struct LaneControl {
  std::array<Announcement, 2> half;
  alignas(64) std::atomic<std::uint64_t> completed{0};  // runs of this lane that the owner has completed
};

// Of one channel.
struct ControlBlock {
  std::array<LaneControl, kLanes> lanes;
  alignas(64) std::array<std::array<std::byte, kLaneScratchBytes>, 2 * kLanes> scratch;
};

// Of one rank, at the start of its region.
struct Presence {
  // The rank sleeps on `doorbell` while `sleeping` is set; whoever signals to it then rings.
  alignas(64) std::atomic<std::uint32_t> sleeping{0};
  std::atomic<std::uint32_t> doorbell{0};
  // For the diagnosis of a hang: written only by a rank that waits, at least every kRestSlice.
  alignas(64) std::atomic<std::int64_t> heartbeat_ns{0};  // CLOCK_MONOTONIC
  std::atomic<std::int32_t> waits_for{-1};                // rank of the world
};

}  // namespace tutti

#endif  // TUTTI_ENGINE_CONTROL_BLOCK_H_
