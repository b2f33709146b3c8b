// The ranks of one communicator as its engine sees them, and the lanes on which their collectives run.
#ifndef TUTTI_ENGINE_CHANNEL_H_
#define TUTTI_ENGINE_CHANNEL_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "engine/control_block.h"
#include "engine/operation.h"
#include "tutti/buffer.h"
#include "tutti/transport.h"

namespace tutti {

class Arena;

// A rank numbers its channels, those of the groups it is in; the numbers are a part of the tags of messages.
inline constexpr int kMostChannels = 1 << 11;

// Everything here but the constructor belongs to the engine's driver.
class Channel {
 public:
  struct Peer {
    Rank world_rank = 0;
    std::uint32_t channel = 0;  // this group's number at that rank, below kMostChannels
    Endpoint* endpoint = nullptr;
    ControlBlock* control = nullptr;  // nullptr: not mapped
    MappedRegion region;
  };

  // `peers` in group order, this rank included; `control` is this rank's block.
  Channel(Engine& engine, std::shared_ptr<Arena> arena, Rank rank, std::vector<Peer> peers, Buffer control);

  // Gives `operation` its place in the order of calls; false when its lane is taken.
  bool Admit(Operation& operation);
  // The rank whose earlier run must complete before `operation` may start; nullopt: none, it may start.
  std::optional<Rank> BlockedBy(const Operation& operation);
  // Tells the peers where this run's memory is (first signal) and that it has come this far.
  void Signal(Operation& operation);
  // True when `peer` has made its `ordinal`-th signal of the run; its memory is then known. InvalidArgument when it
  // made another call.
  absl::StatusOr<bool> HasSignalled(Operation& operation, Rank peer, std::uint32_t ordinal);
  // The run is over: its lane is free for the next.
  void Retire(Operation& operation);

  std::uint64_t TagOf(const Operation& operation, const Instruction& message) const;
  // Scratch for a run of `operation`, which has been admitted.
  std::byte* ScratchOf(const Operation& operation);

  Engine& engine() const { return engine_; }
  Arena& arena() const { return *arena_; }
  Rank rank() const { return rank_; }
  int size() const { return static_cast<int>(peers_.size()); }
  const Peer& peer(Rank rank) const { return peers_[rank]; }

 private:
  struct Lane {
    Operation* occupant = nullptr;
    std::uint64_t runs = 0;
    std::vector<std::uint64_t> confirmed;  // by rank: runs it is known to have completed
  };

  bool Confirmed(int lane, Rank peer, std::uint64_t run);
  absl::Status Learn(Operation& operation, Rank peer, const Announcement& announcement);

  Engine& engine_;
  const std::shared_ptr<Arena> arena_;
  const Rank rank_;
  const std::vector<Peer> peers_;
  const Buffer control_buffer_;
  ControlBlock* const control_;
  std::array<Lane, kLanes> lanes_;
  std::uint64_t calls_ = 0;
  std::vector<std::uint64_t> messages_sent_;  // point-to-point calls, by peer
  std::vector<std::uint64_t> messages_received_;
};

}  // namespace tutti

#endif  // TUTTI_ENGINE_CHANNEL_H_
