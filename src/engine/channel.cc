#include "engine/channel.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/futex.h"
#include "base/prefetch.h"
#include "engine/call.h"
#include "engine/engine.h"
#include "engine/hang.h"
#include "memory/arena.h"

namespace tutti {
namespace {

// The peers that map this rank's memory.
std::shared_ptr<const Borrowers> BorrowersAmong(const Engine& engine, const std::vector<Channel::Peer>& peers,
                                                Rank rank) {
  auto borrowers = std::make_shared<Borrowers>();
  for (Rank peer = 0; peer < static_cast<Rank>(peers.size()); ++peer) {
    const Channel::Peer& p = peers[static_cast<std::size_t>(peer)];
    if (peer == rank || p.control == nullptr) continue;
    borrowers->push_back({p.control, p.generation, engine.ended(p.world_rank)});
  }
  return borrowers;
}

// The number of bytes of scratch that are worth a prefetch.
std::size_t PrefetchedBytes(const Program& program) {
  return static_cast<std::size_t>(std::min<std::int64_t>(program.plan.scratch_bytes, 256));
}

}  // namespace

Channel::Channel(Engine& engine, std::shared_ptr<Arena> arena, std::shared_ptr<LentMemory> lent,
                 std::shared_ptr<ControlBlocks> blocks, Rank rank, std::vector<Peer> peers)
    : engine_(engine),
      arena_(std::move(arena)),
      lent_(std::move(lent)),
      blocks_(std::move(blocks)),
      rank_(rank),
      peers_(std::move(peers)),
      borrowers_(BorrowersAmong(engine, peers_, rank)),
      control_(peer(rank).control),
      generation_(peer(rank).generation & 0xffffffff),
      left_(peers_.size()),
      gave_up_(peers_.size()),
      messages_(peers_.size()),
      stream_messages_(peers_.size()) {
  for (Lane& lane : lanes_) lane.confirmed.resize(peers_.size());
  for (const Peer& peer : peers_) {
    Presence* const theirs = engine.options().presence[static_cast<std::size_t>(peer.world_rank)];
    if (theirs != nullptr && &peer != &this->peer(rank)) {
      neighbours_.push_back({.presence = theirs, .endpoint = peer.endpoint, .world_rank = peer.world_rank});
    }
  }
  engine_.Open(*this);
}

Channel::~Channel() {
  std::array<std::uint64_t, kLanes> runs{};
  // Runs on streams have no lane in which peers tell that they have completed them: the block serves no other channel
  // before these peers have closed theirs.
  for (std::size_t lane = 0; lane < kLanes; ++lane) runs[lane] = on_device() != nullptr ? kNoRun : lanes_[lane].runs;
  blocks_->Close(control_, borrowers_, runs);
  ring_ = kAwaitsNews;
  RingSleepers();
}

void Channel::RingSleepers() {
  if (ring_ == kAwake) return;
  const std::uint32_t least = std::exchange(ring_, kAwake);
  // The fence stands between what this rank has stored and the loads of `sleeping`, so either a peer that goes to sleep
  // sees what was stored or this rank sees the peer sleep.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (const Neighbour& neighbour : neighbours_) {
    if (neighbour.presence->sleeping.load(std::memory_order_seq_cst) >= least) Ring(neighbour);
  }
}

// The count goes up before the look at where the peer sleeps, and a peer that is to sleep in its transport shows so
// before it looks at the count: either the peer sees the count, or this rank wakes the peer in its transport.
void Channel::Ring(const Neighbour& neighbour) {
  Presence& theirs = *neighbour.presence;
  theirs.doorbell.fetch_add(1, std::memory_order_seq_cst);
  if (theirs.sleeps_in_transport.load(std::memory_order_seq_cst) != 0) {
    neighbour.endpoint->Wake();
  } else {
    FutexWakeAll(theirs.doorbell);
  }
}

bool Channel::Admit(Run& run) {
  Ticket& ticket = run.ticket;
  ticket.signals = 0;
  ticket.any_private_buffers = run.private_buffers;
  ticket.has_gone_over = false;
  ++ticket.look;
  const bool on_stream = run.program.stream_order != nullptr;
  if (on_stream) RecordMessages(run);
  if (run.program.point_to_point) {
    ticket.sequence = point_calls_++;
    return true;
  }
  if (on_stream) {  // peers see nothing of its memory
    Identify(run);
    return true;
  }
  const int index = static_cast<int>(calls_ % kLanes);
  Lane& lane = lanes_[static_cast<std::size_t>(index)];
  if (lane.occupant != nullptr) return false;
  lane.occupant = &run;
  ticket.lane = index;
  ticket.lane_run = ++lane.runs;
  CountMessages(run);
  Identify(run);
  return true;
}

void Channel::Identify(Run& run) {
  Ticket& ticket = run.ticket;
  ticket.sequence = calls_++;
  const CallOptions& options = run.call.options();
  ticket.identity = {run.program.signature, run.program.plan.spec.count, options.owner, options.round};
  if (!run.program.messages.empty()) ticket.identity_hash = HashOf(ticket.identity);
  Record(run);
}

void Channel::CountMessages(Run& run) {
  const std::vector<MessageCounts>& own = run.program.messages;
  for (std::size_t peer = 0; peer < own.size(); ++peer) {
    run.ticket.first_message[peer] = messages_[peer];
    messages_[peer].sent += own[peer].sent;
    messages_[peer].received += own[peer].received;
  }
}

void Channel::Record(const Run& run) {
  const std::uint64_t sequence = run.ticket.sequence;
  const CallIdentity& identity = run.ticket.identity;
  CallRecord& record = control_->records[sequence % kCallRecords];
  record.number.store(0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  record.signature.store(identity.signature, std::memory_order_relaxed);
  record.count.store(identity.count, std::memory_order_relaxed);
  record.round.store(identity.round, std::memory_order_relaxed);
  record.owner.store(identity.owner, std::memory_order_relaxed);
  record.number.store(sequence + 1, std::memory_order_release);
  control_->calls.store(sequence + 1, std::memory_order_release);
}

void Channel::RecordMessages(Run& run) {
  std::vector<std::uint64_t>& numbers = run.ticket.message_numbers;
  numbers.clear();
  for (const StreamMessage& message : run.stream_messages()) {
    MessageCounts& counts = stream_messages_[static_cast<std::size_t>(message.peer)];
    const std::uint64_t number = ++(message.sends ? counts.sent : counts.received);
    numbers.push_back(number);
    MessageRecord* const record = MessageRecordIn(*control_, message.peer, message.sends, number);
    if (record == nullptr) continue;
    record->number.store(0, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    record->bytes.store(message.bytes, std::memory_order_relaxed);
    record->number.store(number, std::memory_order_release);
  }
}

bool Channel::Confirmed(int lane, Rank peer, std::uint64_t run) {
  std::uint64_t& confirmed = lanes_[static_cast<std::size_t>(lane)].confirmed[static_cast<std::size_t>(peer)];
  const Peer& p = peers_[static_cast<std::size_t>(peer)];
  if (confirmed >= run || peer == rank_ || p.control == nullptr) return true;
  if (!Borrower{p.control, p.generation}.HasCompleted(lane, run)) return false;
  confirmed = run;
  return true;
}

std::optional<Rank> Channel::BlockedBy(const Run& run) {
  const Ticket& ticket = run.ticket;
  if (!run.program.uses_lane) return std::nullopt;
  for (Rank peer = 0; peer < size(); ++peer) {
    if (ticket.lane_run > 2 && !Confirmed(ticket.lane, peer, ticket.lane_run - 2)) return peer;
    if (ticket.lent_lane >= 0 && !Confirmed(ticket.lent_lane, peer, ticket.lent_run)) return peer;
  }
  return std::nullopt;
}

std::byte* Channel::LaneScratch(const Ticket& ticket, const Program& program) const {
  if (ticket.lane < 0) return nullptr;
  return ScratchIn(*control_, ticket, program).data();
}

void Channel::Signal(Run& run) {
  Ticket& ticket = run.ticket;
  Announcement& mine = HalfOf(*control_, ticket);
  if (ticket.signals == 0) {
    // A buffer that was lent as the run began stays lent: it is still in its place, though the arena may have withdrawn
    // its block meanwhile, because another group has failed that has a part of the same block.
    const auto offset_of = [&](Space space) {
      const std::byte* base = run.bases[static_cast<std::size_t>(space)];
      return arena_->IsInRegion(base) ? arena_->OffsetOf(base) : Announcement::kNotLent;
    };
    const CallIdentity& identity = ticket.identity;
    // A rank in place has only an output, and where a collective has a root, other ranks may have only an input or only
    // an output. Peers do not know which, so a rank with one of the two announces it as both.
    const Plan& plan = run.program.plan;
    const Space first = plan.in_bytes > 0 ? Space::kIn : Space::kOut;
    std::int64_t in = offset_of(first);
    std::int64_t out = offset_of(plan.out_bytes > 0 ? Space::kOut : Space::kIn);
    if (run.private_buffers) {
      // Memory that has been withdrawn from the arena is still at its address, but peers see other bytes in the region.
      const std::byte* const base = run.bases[static_cast<std::size_t>(first)];
      const bool in_process = !run.in_process.empty() && !arena_->Contains(base);
      if (in_process) in = Announcement::PlaceInProcess(base);
      out = Announcement::kPrivateBuffers;
    }
    const std::int64_t scratch = offset_of(Space::kScratch);
    // A peer that waits reads this line again and again, and takes it away from this processor each time: the stores
    // follow each other without a computation between them, so that the line is rarely taken in their midst.
    mine.in = in;
    mine.out = out;
    mine.scratch = scratch;
    mine.signature = identity.signature;
    mine.count = identity.count;
    mine.round = identity.round;
    mine.owner = identity.owner;
    mine.refused_by.store(-1, std::memory_order_relaxed);
    if (run.program.counts_bytes > 0) TellCounts(run);
  }
  mine.signal.store(ticket.lane_run << 16 | ++ticket.signals, std::memory_order_release);
  ring_ = kAwaitsNews;
}

void Channel::PrefetchForNextRun(const Program& program) const {
  Ticket next;
  next.lane = static_cast<int>(calls_ % kLanes);
  next.lane_run = lanes_[static_cast<std::size_t>(next.lane)].runs + 1;
  PrefetchToWrite(&HalfOf(*control_, next), sizeof(Announcement));
  PrefetchToWrite(LaneScratch(next, program), PrefetchedBytes(program));
}

void Channel::PrefetchScratchOf(Rank peer, const Run& run) const {
  PrefetchToRead(ScratchIn(*this->peer(peer).control, run.ticket, run.program).data(), PrefetchedBytes(run.program));
}

void Channel::GoOver(Run& run) {
  Ticket& ticket = run.ticket;
  ticket.has_gone_over = true;
  ++ticket.look;
  LaneControl& lane = control_->lanes[static_cast<std::size_t>(ticket.lane)];
  const std::byte* const scratch = run.bases[static_cast<std::size_t>(Space::kScratch)];
  lane.scratch_gone_over[ticket.lane_run & 1] =
      arena_->Contains(scratch) ? arena_->OffsetOf(scratch) : Announcement::kNotLent;
}

absl::StatusOr<Channel::Signalled> Channel::HasSignalled(Run& run, Rank peer, std::uint32_t ordinal) {
  const Ticket& ticket = run.ticket;
  const Announcement& theirs = AnnouncementOf(ticket, peer);
  const std::uint64_t signal = theirs.signal.load(std::memory_order_seq_cst);
  if (signal < SignalOf(ticket, ordinal)) return Signalled::kNotYet;
  const bool known = ticket.Knows(peer);
  // A block that has been opened again signals on another channel: its owner has left this channel without making the
  // call. A block that signals in this run is not opened again before this rank has completed the run.
  const Peer& p = peers_[static_cast<std::size_t>(peer)];
  if (!known && p.control->generation.load(std::memory_order_seq_cst) > p.generation + 1) return Signalled::kNotYet;
  if (signal == (ticket.lane_run << 16 | kRefused)) return Signalled::kNever;
  if (!known) {
    if (absl::Status status = Learn(run, peer, theirs); !status.ok()) return status;
  }
  return Signalled::kYes;
}

void Channel::Refuse(const Ticket& ticket, Rank by) {
  Announcement& mine = HalfOf(*control_, ticket);
  mine.refused_by.store(by, std::memory_order_relaxed);
  mine.signal.store(ticket.lane_run << 16 | kRefused, std::memory_order_release);
  ring_ = kAwaitsNews;
}

Rank Channel::RefusedBy(const Ticket& ticket, Rank peer) const {
  const Rank by = AnnouncementOf(ticket, peer).refused_by.load(std::memory_order_relaxed);
  return by >= 0 && by < size() ? by : peer;
}

std::optional<Rank> Channel::StillTakesPart(const Ticket& ticket) const {
  for (Rank rank = 0; rank < size(); ++rank) {
    const Peer& p = peer(rank);
    if (rank == rank_ || p.control == nullptr) continue;
    const std::uint64_t signal = AnnouncementOf(ticket, rank).signal.load(std::memory_order_seq_cst);
    if (signal == (ticket.lane_run << 16 | kRefused)) continue;
    if (!Borrower{p.control, p.generation}.HasCompleted(ticket.lane, ticket.lane_run)) return rank;
  }
  return std::nullopt;
}

void Channel::Retire(Run& run, bool lends_scratch) {
  Ticket& ticket = run.ticket;
  if (ticket.lane < 0) return;
  control_->lanes[static_cast<std::size_t>(ticket.lane)].completed.store(ticket.lane_run, std::memory_order_release);
  // Where ring_ is kAwaitsNews, peers that await completions are rung already.
  if (!neighbours_.empty() && ring_ == kAwake) ring_ = kAwaitsCompletions;
  if (lends_scratch) {
    ticket.lent_lane = ticket.lane;
    ticket.lent_run = ticket.lane_run;
  }
  FreeLane(ticket);
}

void Channel::GiveUp(Run& run) {
  if (run.ticket.lane >= 0) FreeLane(run.ticket);
}

void Channel::FreeLane(Ticket& ticket) {
  lanes_[static_cast<std::size_t>(ticket.lane)].occupant = nullptr;
  ticket.lane = -1;
}

absl::Status Channel::CompareCalls(const Run& run) const {
  if (absl::Status status = CompareMessages(run); !status.ok() || run.program.point_to_point) return status;
  const CallIdentity& mine = run.ticket.identity;
  const std::uint64_t sequence = run.ticket.sequence;
  for (Rank rank = 0; rank < size(); ++rank) {
    const Peer& p = peer(rank);
    if (rank == rank_ || p.control == nullptr) continue;
    const CallRecord& record = p.control->records[sequence % kCallRecords];
    if (record.number.load(std::memory_order_acquire) != sequence + 1) continue;
    const CallIdentity theirs{
        record.signature.load(std::memory_order_relaxed), record.count.load(std::memory_order_relaxed),
        record.owner.load(std::memory_order_relaxed), record.round.load(std::memory_order_relaxed)};
    std::atomic_thread_fence(std::memory_order_acquire);
    // What was read counts only if the record still is that of this call, and the block still that of this channel.
    if (record.number.load(std::memory_order_acquire) != sequence + 1) continue;
    if (p.control->generation.load(std::memory_order_acquire) > p.generation + 1) continue;
    if (!Match(run.program, mine, theirs)) {
      return absl::InvalidArgumentError(ExplainMismatch(run.program, mine, rank, theirs));
    }
  }
  return absl::OkStatus();
}

absl::Status Channel::CompareMessages(const Run& run) const {
  const absl::Span<const StreamMessage> messages = run.stream_messages();
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const StreamMessage& mine = messages[i];
    const Peer& p = peer(mine.peer);
    if (mine.peer == rank_ || p.control == nullptr) continue;
    const std::uint64_t number = run.ticket.message_numbers[i];
    const MessageRecord* const record = MessageRecordIn(*p.control, rank_, !mine.sends, number);
    if (record == nullptr || record->number.load(std::memory_order_acquire) != number) continue;
    const std::int64_t bytes = record->bytes.load(std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);
    // As in CompareCalls.
    if (record->number.load(std::memory_order_acquire) != number) continue;
    if (p.control->generation.load(std::memory_order_acquire) > p.generation + 1 || bytes == mine.bytes) continue;
    const auto text = [](Rank from, Rank to, std::int64_t sent, std::int64_t received) {
      return absl::StrCat("rank ", from, " sends ", sent, " bytes to rank ", to, ", which receives ", received);
    };
    return absl::InvalidArgumentError(
        absl::StrCat(mine.sends ? text(rank_, mine.peer, mine.bytes, bytes) : text(mine.peer, rank_, bytes, mine.bytes),
                     ", in ", run.Text(), " of rank ", rank_, ": both must be equal"));
  }
  return absl::OkStatus();
}

bool Channel::HasMetMessages(const Run& run, Rank peer) const {
  const Peer& p = this->peer(peer);
  if (p.control == nullptr) return true;
  const absl::Span<const StreamMessage> messages = run.stream_messages();
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].peer != peer || peer == rank_) continue;
    const std::uint64_t number = run.ticket.message_numbers[i];
    const MessageRecord* const record = MessageRecordIn(*p.control, rank_, !messages[i].sends, number);
    if (record != nullptr && record->number.load(std::memory_order_acquire) < number) return false;
  }
  return true;
}

bool Channel::HasClosedWithout(const Run& run, const Peer& peer) {
  const std::uint64_t generation = peer.control->generation.load(std::memory_order_acquire);
  const std::uint64_t calls = peer.control->calls.load(std::memory_order_acquire);
  // A peer that has taken part cannot open the block again before this rank has completed the call.
  if (generation > peer.generation + 1) return true;
  return generation > peer.generation && calls <= run.ticket.sequence;
}

absl::Status Channel::CheckNobodyLeftWithout(const Run& run) const {
  for (Rank rank = 0; rank < size(); ++rank) {
    const Peer& p = peer(rank);
    if (rank == rank_ || p.control == nullptr || !HasClosedWithout(run, p)) continue;
    return absl::UnavailableError(absl::StrCat(TextOfLeaver(p.world_rank), " without ", run.Text(), ", which rank ",
                                               peer(rank_).world_rank, " has made"));
  }
  return absl::OkStatus();
}

bool Channel::HasLeftWithout(const Run& run, Rank peer) const {
  if (peer == kAnySource) {
    Rank others_gone = 0;
    while (others_gone < size() && (others_gone == rank_ || HasLeftWithout(run, others_gone))) ++others_gone;
    return others_gone == size() && size() > 1;
  }
  const Peer& p = this->peer(peer);
  if (peer == rank_) return false;
  const bool closed = p.control != nullptr && p.control->generation.load(std::memory_order_acquire) > p.generation;
  if (run.program.stream_order != nullptr && !gave_up_[static_cast<std::size_t>(peer)]) {
    // The stream may be behind a peer that has done its part and left, and whose messages the transport does not know.
    if (p.control != nullptr) {
      return closed && (run.program.point_to_point ? !HasMetMessages(run, peer) : HasClosedWithout(run, p));
    }
    if (run.enqueued()) return false;
  }
  if (closed && !run.program.point_to_point && HasClosedWithout(run, p)) return true;
  // A peer closes, or tells that it has left, when the network has its last messages, which may come later than that.
  // Other messages that the peer sent before it left may still arrive: Engine::CheckLeavers looks twice.
  const bool told = left_[static_cast<std::size_t>(peer)] || gave_up_[static_cast<std::size_t>(peer)];
  const bool leaves = told || (closed && run.program.point_to_point);
  return (leaves && !engine_.transport().IsReceivingFrom(p.world_rank)) || engine_.leavers().HasLeft(p.world_rank);
}

bool Channel::maps_all_peers() const {
  return std::all_of(peers_.begin(), peers_.end(),
                     [this](const Peer& p) { return &p == &peer(rank_) || p.control != nullptr; });
}

bool Channel::HasLeft(Rank peer) const {
  const Peer& p = this->peer(peer);
  const bool closed = p.control != nullptr && p.control->generation.load(std::memory_order_acquire) > p.generation;
  return closed || left_[static_cast<std::size_t>(peer)] || engine_.transport().HasLeft(p.world_rank);
}

Rank Channel::PeerOf(const Instruction& message, Rank source) const {
  if (message.peer != kAnySource) return message.peer;
  return source == kAnySource ? rank_ : RankOf(source).value_or(rank_);
}

std::optional<Rank> Channel::RankOf(Rank world_rank) const {
  for (Rank rank = 0; rank < size(); ++rank) {
    if (peer(rank).world_rank == world_rank) return rank;
  }
  return std::nullopt;
}

std::optional<Rank> Channel::HasNotCalled(const Ticket& ticket, Rank preferred) const {
  const auto has_not_called = [&](Rank rank) {
    const Peer& p = peer(rank);
    return rank != rank_ && p.control != nullptr &&
           p.control->calls.load(std::memory_order_acquire) <= ticket.sequence &&
           p.control->generation.load(std::memory_order_acquire) == p.generation;
  };
  if (has_not_called(preferred)) return preferred;
  for (Rank rank = 0; rank < size(); ++rank) {
    if (has_not_called(rank)) return rank;
  }
  return std::nullopt;
}

// The tag of a collective: channel (19 bits) · 0 · hash of the call (8) · message between the two ranks (20).
// The tag of a Send or Recv: channel (19 bits) · 1 · tag of the caller (28).
//
// The channel is the number that the receiver has given it. Messages are matched at the receiver, by sender and tag,
// and no two channels that a rank has in a world have one number: so no message of a group can meet a receive of
// another, whatever numbers the other ranks have given these groups. The messages of Sends and Recvs are not numbered,
// because a receive from any source would not know whose number to expect: transports match equal tags in the order
// posted, and the executor posts them in the order of the calls. Messages of collectives are numbered over all calls of
// a channel. Ranks that make different calls in one place nearly always have different hashes, and then wait for each
// other until the difference is found or the time is up, instead of taking one another's messages for their own.
//
// Messages of one number that are not under way at the same time are matched in the order of the calls. Messages that
// are under way at the same time belong to at most kLanes calls, of at most kMaxMessagesToAPeer messages between two
// ranks each, and so have different numbers: PlanBuilder cuts a buffer into at most 2^16 segments, and no schedule
// sends one rank much more than two buffers; plans that are bound are checked.
std::uint64_t Channel::TagOf(const Run& run, const Instruction& message) const {
  const bool sends = message.kind == StepKind::kSend;
  const std::uint64_t channel = std::uint64_t{peer(sends ? message.peer : rank_).channel} << kGroupShift;
  if (run.program.point_to_point) {
    static_assert(std::uint64_t{1} << (kGroupShift - 1) == std::uint64_t{kMaxTag} + 1);
    return channel | std::uint64_t{1} << 28 | static_cast<std::uint64_t>(run.call.options().tag);
  }
  const MessageCounts& first = run.ticket.first_message[static_cast<std::size_t>(message.peer)];
  const std::uint64_t number = (sends ? first.sent : first.received) + message.ordinal;
  return channel | std::uint64_t{run.ticket.identity_hash} << 20 | (number & 0xfffff);
}

}  // namespace tutti
