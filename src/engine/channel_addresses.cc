// How a channel learns, from what peers announce with their first signal of a run, that they make the same call, and
// where their buffers lie.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "engine/channel.h"
#include "engine/run.h"

namespace tutti {
namespace {

// More than any process has on a machine of 64 bits.
constexpr std::int64_t kMostBytesOfProcess = std::int64_t{1} << 57;

// The address at `offset` of `memory`, which may be that of another process, whose addresses are its offsets.
std::byte* AddressIn(const MappedRegion& memory, std::int64_t offset) {
  return reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(memory.base) +
                                      static_cast<std::uintptr_t>(offset));
}

}  // namespace

// The announcement was written by another process: nothing in it is used before it is checked, and no function reads a
// field twice.
absl::Status Channel::Learn(Run& run, Rank peer, const Announcement& announcement) {
  const Ticket& ticket = run.ticket;
  const CallIdentity& mine = ticket.identity;
  const CallIdentity theirs{announcement.signature, announcement.count, announcement.owner, announcement.round};
  if (!Match(run.program, mine, theirs))
    return absl::InvalidArgumentError(ExplainMismatch(run.program, mine, peer, theirs));
  if (run.program.counts_bytes > 0) {
    if (absl::Status status = CompareCounts(run, peer); !status.ok()) return status;
  }
  if (absl::Status status = LearnAddresses(run, peer, announcement); !status.ok()) return status;
  run.ticket.known_since[static_cast<std::size_t>(peer)] = ticket.look;
  // The peer could start this run only once the peer's previous run of this lane was complete.
  std::uint64_t& confirmed = lanes_[static_cast<std::size_t>(ticket.lane)].confirmed[static_cast<std::size_t>(peer)];
  confirmed = std::max(confirmed, ticket.lane_run - 1);
  return absl::OkStatus();
}

std::int64_t* Channel::CountsIn(ControlBlock& block, const Run& run) {
  const absl::Span<std::byte> scratch = ScratchIn(block, run.ticket, run.program);
  return reinterpret_cast<std::int64_t*>(scratch.data() + scratch.size() - run.program.counts_bytes);
}

void Channel::TellCounts(const Run& run) {
  const CollectiveSpec& spec = run.program.plan.spec;
  std::int64_t* const counts = CountsIn(*control_, run);
  std::copy(spec.send_counts.begin(), spec.send_counts.end(), counts);
  std::copy(spec.recv_counts.begin(), spec.recv_counts.end(), counts + size());
}

absl::Status Channel::CompareCounts(const Run& run, Rank peer) const {
  const CollectiveSpec& spec = run.program.plan.spec;
  const std::int64_t* const theirs = CountsIn(*this->peer(peer).control, run) + rank_;
  const auto compare = [&](Rank from, std::int64_t sent, Rank to, std::int64_t received) {
    if (sent == received) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("send_counts[", to, "] of rank ", from, " is ", sent,
                                                   ", but recv_counts[", from, "] of rank ", to, " is ", received,
                                                   ", in ", run.Text(), ": they must be equal"));
  };
  absl::Status status = compare(peer, theirs[0], rank_, spec.recv_counts[static_cast<std::size_t>(peer)]);
  status.Update(compare(rank_, spec.send_counts[static_cast<std::size_t>(peer)], peer, theirs[size()]));
  return status;
}

absl::StatusOr<std::int64_t> Channel::PlaceOfBlock(const Run& run, Rank peer, const MappedRegion& memory,
                                                   std::int64_t in) const {
  const CollectiveSpec& spec = run.program.plan.spec;
  const std::int64_t most = memory.bytes / SizeOf(spec.dtype);
  const std::int64_t* const theirs = CountsIn(*peers_[static_cast<std::size_t>(peer)].control, run);
  std::int64_t before = 0;  // elements of the peer's input in front of this rank's block
  for (Rank rank = 0; rank < rank_ && before <= most; ++rank) {
    const std::int64_t count = theirs[rank];
    before += std::clamp<std::int64_t>(count, 0, most);
  }
  const std::int64_t length = spec.recv_counts[static_cast<std::size_t>(peer)];
  const bool inside = in >= 0 && in <= memory.bytes && before <= most && length <= most &&
                      (before + length) * SizeOf(spec.dtype) <= memory.bytes - in;
  if (inside) return in + before * SizeOf(spec.dtype);
  return absl::DataLossError(absl::StrCat("rank ", peer, " announced a block of ", length, " elements, the ", before,
                                          "th and following of a buffer at offset ", in, ", outside its memory of ",
                                          memory.bytes, " bytes"));
}

absl::Status Channel::FindBuffersOfPeers(Run& run) {
  for (Rank peer = 0; peer < size(); ++peer) {
    if (peer == rank_) continue;
    absl::Status status = LearnAddresses(run, peer, AnnouncementOf(run.ticket, peer));
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Channel::LearnAddresses(Run& run, Rank peer, const Announcement& announcement) {
  const Peer& p = peers_[static_cast<std::size_t>(peer)];
  const std::int64_t out = announcement.out;
  const bool is_private = out == Announcement::kPrivateBuffers && run.program.for_private_buffers != nullptr;
  run.ticket.any_private_buffers |= is_private;
  const LaneControl& lane = p.control->lanes[static_cast<std::size_t>(run.ticket.lane)];
  const std::int64_t scratch =
      run.ticket.has_gone_over ? lane.scratch_gone_over[run.ticket.lane_run & 1] : announcement.scratch;
  const std::int64_t told = announcement.in;
  const bool in_process = is_private && run.current->reads_processes && Announcement::IsInProcess(told);
  if (run.current->reads_processes) run.in_process[static_cast<std::size_t>(peer)] = in_process;
  const std::int64_t in = in_process ? ~told : told;
  const std::array<std::int64_t, kPeerSpaces - 1> offsets = {in, is_private ? in : out, scratch};
  const std::array<std::int64_t, kPeerSpaces>& sizes = run.current->peer_extents[static_cast<std::size_t>(peer)];
  std::byte** const bases = &run.bases[BaseOf(Space::kIn, peer)];
  const MappedRegion process = {.base = nullptr, .bytes = kMostBytesOfProcess};
  for (std::size_t space = 0; space < offsets.size(); ++space) {
    const bool is_scratch = space == PlaceAmongPeers(Space::kScratch);
    // No step of the first program touches private buffers: after the shared beginning all ranks go over to the other.
    const bool touched = sizes[space] > 0 && (is_scratch || !is_private || run.current->reads_processes);
    if (!touched) continue;
    if (offsets[space] == Announcement::kNotLent) {
      return absl::FailedPreconditionError(
          absl::StrCat("plan ", run.program.plan.name, " of rank ", run.program.plan.rank, " touches the ",
                       Name(static_cast<Space>(space)), " space of rank ", peer, ", but rank ", peer,
                       " has not lent that space: all ranks must touch the same spaces of their peers"));
    }
    const MappedRegion& memory = in_process && !is_scratch ? process : p.region;
    if (offsets[space] < 0 || offsets[space] > memory.bytes - sizes[space]) {
      return absl::DataLossError(absl::StrCat("rank ", peer, " announced a buffer outside its memory (offset ",
                                              offsets[space], ", memory of ", memory.bytes, " bytes)"));
    }
    bases[space] = AddressIn(memory, offsets[space]);
  }
  const bool reads_block = sizes[PlaceAmongPeers(Space::kBlock)] > 0 && (!is_private || run.current->reads_processes) &&
                           run.program.plan.spec.recv_counts[static_cast<std::size_t>(peer)] > 0;
  if (!reads_block) return absl::OkStatus();
  const MappedRegion& memory = in_process ? process : p.region;
  const absl::StatusOr<std::int64_t> block = PlaceOfBlock(run, peer, memory, in);
  if (!block.ok()) return block.status();
  bases[PlaceAmongPeers(Space::kBlock)] = AddressIn(memory, *block);
  return absl::OkStatus();
}

}  // namespace tutti
