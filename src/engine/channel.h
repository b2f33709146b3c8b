// The ranks of one communicator as its engine sees them, the lanes on which their collectives run, and how they fail
// together.
#ifndef TUTTI_ENGINE_CHANNEL_H_
#define TUTTI_ENGINE_CHANNEL_H_

#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/control_block.h"
#include "engine/lent_memory.h"
#include "engine/run.h"
#include "engine/sticky_status.h"
#include "engine/stream_device.h"
#include "tutti/buffer.h"
#include "tutti/transport.h"

namespace tutti {

class Arena;
class Engine;

class Channel {
 public:
  struct Peer {
    Rank world_rank = 0;
    std::uint32_t channel = 0;  // this group's number at that rank, below kMaxChannels
    Endpoint* endpoint = nullptr;
    ControlBlock* control = nullptr;  // nullptr: not mapped
    std::uint64_t generation = 0;     // the generation of `control` while that rank uses it for this channel
    MappedRegion region;
  };

  // `peers` in group order, this rank included, whose `control` is one that `blocks` has opened.
  Channel(Engine& engine, std::shared_ptr<Arena> arena, std::shared_ptr<LentMemory> lent,
          std::shared_ptr<ControlBlocks> blocks, Rank rank, std::vector<Peer> peers);
  // Tells the peers that this rank has left. The engine has closed the channel before (Engine::Close).
  ~Channel();

  // The stream and the native transport of the channel, for programs with a Program::stream_order; null before
  // Engine::SetOnDevice. For the driver alone.
  ChannelOnDevice* on_device() const { return on_device_.get(); }
  void SetOnDevice(std::unique_ptr<ChannelOnDevice> on_device) { on_device_ = std::move(on_device); }

  // ---- any thread ----
  // The first error of the channel, with which every later call of it ends.
  StickyStatus& sticky() { return sticky_; }
  const StickyStatus& sticky() const { return sticky_; }

  // ---- the driver ----

  // Gives `run` its ticket, the place in the order of calls; false when its lane is taken.
  bool Admit(Run& run);
  // The rank whose earlier run must complete before `run` may start; nullopt: `run` may start.
  std::optional<Rank> BlockedBy(const Run& run);
  // Makes the next signal of `run`, which tells the peers how far this rank has come; the first signal also tells them
  // where the memory of the run is. Peers that sleep hear of the signal by the next RingSleepers.
  void Signal(Run& run);
  // Prefetch hints for short runs, which take about as long as a few cache lines travel between cores. The first hint
  // is for the lines that this rank will write first in its next run, the second for the lines of scratch that `peer`
  // has written before its signal.
  void PrefetchForNextRun(const Program& program) const;
  void PrefetchScratchOf(Rank peer, const Run& run) const;
  // Wakes sleeping peers that wait for what this rank has stored since the last RingSleepers: signals, and runs that
  // have ended. The driver calls this before anything that takes microseconds. One memory fence serves all stores.
  void RingSleepers();
  // Goes over to Program::for_private_buffers, after the shared beginning of both programs and before any other step:
  // from this rank's next signal on, its scratch is where run.bases says; the same holds for each peer.
  void GoOver(Run& run);
  // Finds the buffers of the peers for a program that reads processes, to which `run` has gone over instead: the peers
  // have told before where their buffers lie, and scratch stays where it is.
  absl::Status FindBuffersOfPeers(Run& run);
  // Whether `peer` has made its `ordinal`-th signal of the run (the peer's memory is then known), or will never make
  // it, because the run has been refused. InvalidArgument when the peer made another call.
  enum class Signalled : std::uint8_t { kNotYet, kYes, kNever };
  // False while the signal has certainly not been made: a look that is cheap enough for every poll.
  bool MayHaveSignalled(const Ticket& ticket, Rank peer, std::uint32_t ordinal) const {
    return AnnouncementOf(ticket, peer).signal.load(std::memory_order_seq_cst) >= SignalOf(ticket, ordinal);
  }
  absl::StatusOr<Signalled> HasSignalled(Run& run, Rank peer, std::uint32_t ordinal);
  // Tells the peers that rank `by` has no memory for the run, which has begun: the run then ends with an error on all
  // ranks.
  void Refuse(const Ticket& ticket, Rank by);
  // The rank that refused the run, as `peer` says.
  Rank RefusedBy(const Ticket& ticket, Rank peer) const;
  // A peer that may still take a step of a run that has been refused; nullopt when there is none, and the run may end.
  std::optional<Rank> StillTakesPart(const Ticket& ticket) const;
  // Tells the peers that the run is complete (those that sleep, by the next RingSleepers), and frees its lane.
  // `lends_scratch`: peers may go on to read scratch that the next run of the call uses again.
  void Retire(Run& run, bool lends_scratch);
  // Frees the lane, if it has one, of a run that ends with an error of the group. Tells the peers nothing.
  void GiveUp(Run& run);

  // The next functions go by what the peers publish of their calls.
  //
  // InvalidArgument when a mapped peer has made another call in the place of the call of `run`, a collective, or says
  // that one of Run::stream_messages has another length.
  absl::Status CompareCalls(const Run& run) const;
  // Unavailable when a mapped peer has closed its channel without making the call of `run`, a collective.
  absl::Status CheckNobodyLeftWithout(const Run& run) const;
  // Whether `peer` has left this group, or the world, without taking part in `run`; for a Send or Recv on the host,
  // whether it has left at all, and no message of it that a Recv has met is on its way: others may still be arriving.
  // With kAnySource: whether all other ranks have, and there were some. False where all of `run` is on a stream and the
  // memory of `peer` is not mapped: nobody knows then whether `peer` has done its part, and only NCCL, or the deadline,
  // can tell that it has not.
  bool HasLeftWithout(const Run& run, Rank peer) const;
  // Whether `peer` has made all calls in which it takes part in Run::stream_messages of `run`; true where that is not
  // known.
  bool HasMetMessages(const Run& run, Rank peer) const;
  // Whether `peer` has left this channel or the world.
  bool HasLeft(Rank peer) const;
  // A mapped peer that has not made the call of `ticket`, a collective; this is `preferred` if that rank has not made
  // the call.
  std::optional<Rank> HasNotCalled(const Ticket& ticket, Rank preferred) const;

  // ---- failure: see channel_failure.cc ----
  // How far the failure of the channel has come, for the engine.
  struct Failure {
    bool begun = false;         // the peers have been told; no run of the channel moves on
    bool over = false;          // the runs of the channel have ended
    bool took_outputs = false;  // Transport::Seclude has been tried
    bool secluded = false;      // Transport::Seclude has worked
    bool disconnected = false;  // peers that take no messages have been given up (Transport::Disconnect)
    std::int64_t told_ns = 0;   // when the peers were told; CLOCK_MONOTONIC
    // The rank of the world for which a call of this rank waited until its deadline; nullopt: the cause is another one.
    std::optional<Rank> awaited;
    // The messages that were under way at the last look, the bytes that had moved to and from their peers by then, and
    // when a look found fewer messages, or more bytes, than the look before.
    std::size_t messages_left = std::numeric_limits<std::size_t>::max();
    std::int64_t bytes_moved = 0;
    std::int64_t moved_ns = 0;
  };
  Failure failure;
  // Tells the peers why this rank gives the channel up: those that map its memory see it at once.
  void TellFailure(const absl::Status& cause);
  // Whether a peer has told this rank in memory that it has given the channel up.
  bool peer_failed() const { return FailedBy(control_->failed_by.load(std::memory_order_seq_cst)) != 0; }
  // The error that a peer has told this rank in memory.
  absl::Status FailureOfPeer() const;
  // After TellFailure: whether a peer is still, or may be, in the middle of a step that writes to this rank's memory or
  // reads its buffers.
  bool PeersTouchMemory() const;
  // Remembers that `peer`, whose memory is not mapped, has said that it has left the group, or that it has given the
  // group up, which it does not leave before its communicator is destroyed. Either way it sends no message of a call.
  void MarkLeft(Rank peer) { left_[static_cast<std::size_t>(peer)] = true; }
  void MarkGaveUp(Rank peer) { gave_up_[static_cast<std::size_t>(peer)] = true; }
  // The ranks of the world whose memory is not mapped and that have not said that they have left: they may still send
  // on the channel, or, where they have given it up, a note that they leave.
  std::vector<Rank> Away() const;
  // The ranks of the world whose memory is not mapped.
  std::vector<Rank> UnmappedPeers() const;
  // The rank of the group that is rank `world_rank` of the world; nullopt: none.
  std::optional<Rank> RankOf(Rank world_rank) const;
  // Tells the peers whose memory is not mapped that this rank closes the channel.
  void SayGoodbye();

  std::uint64_t TagOf(const Run& run, const Instruction& message) const;
  // The rank that sends or receives `message` of `run`. Of a receive from any source: the rank that is rank `source` of
  // the world, or this rank while that is kAnySource, because no message has met the receive.
  Rank PeerOf(const Instruction& message, Rank source) const;
  // The scratch of the lane of `ticket` for `program`; null without a lane.
  std::byte* LaneScratch(const Ticket& ticket, const Program& program) const;

  Engine& engine() const { return engine_; }
  Arena& arena() const { return *arena_; }
  const std::shared_ptr<LentMemory>& lent() const { return lent_; }
  const std::shared_ptr<const Borrowers>& borrowers() const { return borrowers_; }
  Rank rank() const { return rank_; }
  int size() const { return static_cast<int>(peers_.size()); }
  // The number that this rank has given the group.
  std::uint32_t number() const { return peer(rank_).channel; }
  const Peer& peer(Rank rank) const { return peers_[static_cast<std::size_t>(rank)]; }
  // Whether this rank maps the memory of all others: all are on its node.
  bool maps_all_peers() const;

 private:
  struct Lane {
    Run* occupant = nullptr;
    std::uint64_t runs = 0;
    std::vector<std::uint64_t> confirmed;  // by rank: the runs that the rank is known to have completed
  };

  bool Confirmed(int lane, Rank peer, std::uint64_t run);
  // Whether `peer`, which is mapped, has closed its channel without making the call of `run`.
  static bool HasClosedWithout(const Run& run, const Peer& peer);
  static LaneHalf& HalfOf(ControlBlock& block, const Ticket& ticket) {
    return block.halves[static_cast<std::size_t>(ticket.lane)][ticket.lane_run & 1];
  }
  // The scratch in `block` of a run of `program`.
  static absl::Span<std::byte> ScratchIn(ControlBlock& block, const Ticket& ticket, const Program& program) {
    if (program.has_short_scratch) return absl::MakeSpan(HalfOf(block, ticket).scratch);
    return absl::MakeSpan(block.scratch[2 * static_cast<std::size_t>(ticket.lane) + (ticket.lane_run & 1)]);
  }
  static std::uint64_t SignalOf(const Ticket& ticket, std::uint32_t ordinal) { return ticket.lane_run << 16 | ordinal; }
  const Announcement& AnnouncementOf(const Ticket& ticket, Rank peer) const {
    return HalfOf(*this->peer(peer).control, ticket);
  }
  // Where the owner of `block` tells the counts of its blocks in the all_to_all_v of `run`: those that it sends, by
  // rank, then those that it receives.
  static std::int64_t* CountsIn(ControlBlock& block, const Run& run);
  void TellCounts(const Run& run);
  // InvalidArgument when `peer` sends to this rank, or receives from it, another number of elements than this rank
  // says.
  absl::Status CompareCounts(const Run& run, Rank peer) const;
  absl::Status Learn(Run& run, Rank peer, const Announcement& announcement);
  absl::Status LearnAddresses(Run& run, Rank peer, const Announcement& announcement);
  // The offset in `memory` of the block that `peer` sends to this rank, by the counts that `peer` tells; `in` is the
  // offset of the peer's input. DataLoss when the block lies outside the memory.
  absl::StatusOr<std::int64_t> PlaceOfBlock(const Run& run, Rank peer, const MappedRegion& memory,
                                            std::int64_t in) const;
  // The rank of the group + 1 that `failed_by`, of this rank's block, names; 0 where `failed_by` is not about this
  // channel.
  std::uint32_t FailedBy(std::uint64_t failed_by) const {
    return failed_by >> 32 == generation_ ? static_cast<std::uint32_t>(failed_by) : 0;
  }
  // Gives the messages of `run`, a collective, the next numbers.
  void CountMessages(Run& run);
  // Numbers `run`, a collective, and publishes what was called.
  void Identify(Run& run);
  void Record(const Run& run);
  // Numbers Run::stream_messages of `run`, and publishes them.
  void RecordMessages(Run& run);
  // The place, in the block of a rank, for its `number`-th message to (from) `other` in a call on a stream; null in
  // worlds of so many ranks that there are fewer places than pairs. A later message between the two in this direction
  // takes the place again, and no other one does.
  template <typename Block>
  auto* MessageRecordIn(Block& block, Rank other, bool sends, std::uint64_t number) const {
    const std::size_t places = kMessageRecords / (2 * peers_.size());
    const std::size_t pair = 2 * static_cast<std::size_t>(other) + (sends ? 1 : 0);
    return places == 0 ? nullptr : &block.messages[pair * places + number % places];
  }
  absl::Status CompareMessages(const Run& run) const;
  void FreeLane(Ticket& ticket);

  Engine& engine_;
  const std::shared_ptr<Arena> arena_;
  const std::shared_ptr<LentMemory> lent_;
  const std::shared_ptr<ControlBlocks> blocks_;
  const Rank rank_;
  const std::vector<Peer> peers_;
  const std::shared_ptr<const Borrowers> borrowers_;
  ControlBlock* const control_;
  const std::uint64_t generation_;  // of `control_`; the 32 bits that ControlBlock::failed_by holds
  StickyStatus sticky_;
  struct Neighbour {
    Presence* presence = nullptr;
    Endpoint* endpoint = nullptr;
    Rank world_rank = 0;
    std::uint32_t touching = 0;  // Presence::touching just after the neighbour was told of a failure
  };
  // Wakes a neighbour that sleeps, or keeps it from going to sleep.
  static void Ring(const Neighbour& neighbour);
  std::vector<Neighbour> neighbours_;  // the mapped peers
  std::vector<bool> left_;             // by rank: see MarkLeft
  std::vector<bool> gave_up_;          // by rank: see MarkGaveUp
  std::array<Lane, kLanes> lanes_;
  // The next RingSleepers rings the peers whose Presence::sleeping is at least this; kAwake: it rings nobody.
  std::uint32_t ring_ = kAwake;
  std::uint64_t calls_ = 0;
  std::vector<MessageCounts> messages_;  // by peer: messages of the collectives admitted so far
  std::unique_ptr<ChannelOnDevice> on_device_;
  std::uint64_t point_calls_ = 0;               // Sends and Recvs admitted so far
  std::vector<MessageCounts> stream_messages_;  // by peer: Run::stream_messages of the runs admitted so far
};

}  // namespace tutti

#endif  // TUTTI_ENGINE_CHANNEL_H_
