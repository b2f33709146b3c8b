#include "engine/channel.h"

#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/engine.h"
#include "memory/arena.h"

namespace tutti {

Channel::Channel(Engine& engine, std::shared_ptr<Arena> arena, Rank rank, std::vector<Peer> peers, Buffer control)
    : engine_(engine),
      arena_(std::move(arena)),
      rank_(rank),
      peers_(std::move(peers)),
      control_buffer_(std::move(control)),
      control_(reinterpret_cast<ControlBlock*>(control_buffer_.data())),
      messages_sent_(peers_.size()),
      messages_received_(peers_.size()) {
  for (Lane& lane : lanes_) lane.confirmed.resize(peers_.size());
}

bool Channel::Admit(Operation& operation) {
  const Program& program = operation.program();
  if (program.point_to_point) {
    const bool sends = program.plan.spec.collective == Collective::kSend;
    operation.sequence = (sends ? messages_sent_ : messages_received_)[program.plan.spec.root]++;
    return true;
  }
  const int index = static_cast<int>(calls_ % kLanes);
  Lane& lane = lanes_[index];
  if (lane.occupant != nullptr) return false;
  lane.occupant = &operation;
  operation.sequence = calls_++;
  operation.lane = index;
  operation.lane_run = ++lane.runs;
  return true;
}

bool Channel::Confirmed(int lane, Rank peer, std::uint64_t run) {
  std::uint64_t& confirmed = lanes_[lane].confirmed[peer];
  if (confirmed >= run || peer == rank_ || peers_[peer].control == nullptr) return true;
  confirmed = peers_[peer].control->lanes[lane].completed.load(std::memory_order_seq_cst);
  return confirmed >= run;
}

std::optional<Rank> Channel::BlockedBy(const Operation& operation) {
  const Program& program = operation.program();
  if (!program.uses_lane) return std::nullopt;
  for (Rank peer = 0; peer < size(); ++peer) {
    if (operation.lane_run > 2 && !Confirmed(operation.lane, peer, operation.lane_run - 2)) return peer;
    if (operation.last_lane >= 0 && !Confirmed(operation.last_lane, peer, operation.last_lane_run)) return peer;
  }
  return std::nullopt;
}

std::byte* Channel::ScratchOf(const Operation& operation) {
  if (operation.callers_scratch != nullptr) return operation.callers_scratch;
  if (operation.scratch.data() != nullptr || operation.lane < 0) return operation.scratch.data();
  return control_->scratch[2 * operation.lane + (operation.lane_run & 1)].data();
}

void Channel::Signal(Operation& operation) {
  Announcement& mine = control_->lanes[operation.lane].half[operation.lane_run & 1];
  if (operation.signals == 0) {
    const Program& program = operation.program();
    const auto offset_of = [&](Space space) {
      const std::byte* base = operation.bases[static_cast<std::size_t>(space)];
      return arena_->Contains(base) ? arena_->OffsetOf(base) : 0;
    };
    mine.in = offset_of(Space::kIn);
    mine.out = offset_of(Space::kOut);
    mine.scratch = offset_of(Space::kScratch);
    mine.signature = program.signature;
    mine.count = program.plan.spec.count;
  }
  // Sequentially consistent, like the load of `sleeping`: either the sleeper sees the signal or this rank sees it
  // sleep.
  mine.signal.exchange(operation.lane_run << 16 | ++operation.signals, std::memory_order_seq_cst);
  engine_.RingSleepers(*this);
}

absl::StatusOr<bool> Channel::HasSignalled(Operation& operation, Rank peer, std::uint32_t ordinal) {
  const Announcement& theirs = peers_[peer].control->lanes[operation.lane].half[operation.lane_run & 1];
  const std::uint64_t signal = theirs.signal.load(std::memory_order_seq_cst);
  if (signal < (operation.lane_run << 16 | ordinal)) return false;
  if (!operation.peer_known[peer]) {
    if (absl::Status status = Learn(operation, peer, theirs); !status.ok()) return status;
  }
  return true;
}

// The announcement was written by another process: nothing in it is used before it is checked.
absl::Status Channel::Learn(Operation& operation, Rank peer, const Announcement& announcement) {
  const Program& program = operation.program();
  if (announcement.signature != program.signature || announcement.count != program.plan.spec.count) {
    return absl::InvalidArgumentError(ExplainMismatch(program, peer, announcement.signature, announcement.count));
  }
  const MappedRegion& region = peers_[peer].region;
  const std::array<std::int64_t, kPeerSpaces> offsets = {announcement.in, announcement.out, announcement.scratch};
  const std::array<std::int64_t, kPeerSpaces> sizes = {program.plan.in_bytes, program.plan.out_bytes,
                                                       program.plan.scratch_bytes};
  for (int space = 0; space < kPeerSpaces; ++space) {
    if (offsets[space] < 0 || offsets[space] > region.bytes - sizes[space]) {
      return absl::DataLossError(absl::StrCat("rank ", peer, " announced a buffer outside its region (offset ",
                                              offsets[space], ", region of ", region.bytes, " bytes)"));
    }
    operation.bases[kSpaces + kPeerSpaces * peer + space] = region.base + offsets[space];
  }
  operation.peer_known[peer] = true;
  // Its run could only start once its previous run of this lane was complete.
  std::uint64_t& confirmed = lanes_[operation.lane].confirmed[peer];
  confirmed = std::max(confirmed, operation.lane_run - 1);
  return absl::OkStatus();
}

void Channel::Retire(Operation& operation) {
  if (operation.lane < 0) return;
  if (control_ != nullptr && operation.running) {
    control_->lanes[operation.lane].completed.store(operation.lane_run, std::memory_order_seq_cst);
  }
  if (operation.program().uses_lane && operation.scratch.data() != nullptr) {
    operation.last_lane = operation.lane;
    operation.last_lane_run = operation.lane_run;
  }
  lanes_[operation.lane].occupant = nullptr;
  operation.lane = -1;
}

// channel (11 bits) · point to point (1) · sequence of the call (16) · number of the message in the call (20)
//
// The channel is the number that the receiver has given it. Messages are matched at the receiver, by sender and tag,
// and no two channels of a process have one number: so no message of a group can meet a receive of another, whatever
// the other ranks call these groups, and numbers need no agreement.
std::uint64_t Channel::TagOf(const Operation& operation, const Instruction& message) const {
  const std::uint64_t point_to_point = operation.program().point_to_point ? 1 : 0;
  const Rank receiver = message.kind == StepKind::kSend ? message.peer : rank_;
  return std::uint64_t{peers_[receiver].channel} << 37 | point_to_point << 36 | (operation.sequence & 0xffff) << 20 |
         (message.ordinal & 0xfffff);
}

}  // namespace tutti
