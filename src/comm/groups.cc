// How groups are made: by Split, over the parent's own collectives, and by Group, over the store.
#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "comm/bootstrap_exchange.h"
#include "comm/communicator_impl.h"
#include "comm/loss_aware_store.h"
#include "store/mac.h"
#include "tutti/schedule.h"

namespace tutti {
namespace {

// A rank's entry in the list from which a group is made. A Seat is sent as its bytes, because all ranks run one
// version.
struct Seat {
  enum Error : std::int64_t { kNone, kNoRoom, kNoNumber };

  std::int64_t color = 0, key = 0;  // the arguments of Split
  std::int64_t rank = 0;            // the rank in the parent communicator
  std::int64_t world_rank = 0;
  std::int64_t channel = 0;  // the number that this rank gives the group
  std::int64_t offset = 0;   // where the rank's control block lies in its arena
  std::int64_t generation = 0;
  std::int64_t error = kNone;
};
constexpr int kFields = sizeof(Seat) / sizeof(std::int64_t);

// The options of the calls by which groups are made.
constexpr CallOptions kOwnCall{.schedule = &kSelectorsChoice, .caller_drives = true};

// Opens a control block for a group that this rank may become a member of, and closes the block again unless this rank
// becomes one.
class SeatHolder {
 public:
  SeatHolder(Runtime& runtime, const Channel& parent) : runtime_(runtime) {
    seat_.rank = parent.rank();
    seat_.world_rank = parent.peer(parent.rank()).world_rank;
    away_ = parent.UnmappedPeers();
  }
  ~SeatHolder() {
    if (control_ != nullptr) runtime_.blocks->Close(control_, std::make_shared<const Borrowers>(), {});
    if (number_.has_value()) runtime_.engine->GiveNumberBack(*number_, away_);
  }
  SeatHolder(const SeatHolder&) = delete;
  SeatHolder& operator=(const SeatHolder&) = delete;

  void Open() {
    // A number that no other channel of this rank of the world has or gets, also when threads make groups at the same
    // time: see Channel::TagOf.
    number_ = runtime_.engine->TakeNumber();
    const absl::StatusOr<ControlBlock*> control = runtime_.blocks->Open();
    if (!control.ok()) {
      seat_.error = Seat::kNoRoom;
      return;
    }
    control_ = *control;
    seat_.offset = runtime_.arena->OffsetOf(control_);
    seat_.generation = static_cast<std::int64_t>(control_->generation.load());
    if (number_.has_value()) {
      seat_.channel = *number_;
    } else {
      seat_.error = Seat::kNoNumber;
    }
  }

  // The channel that is made has the block and the number from now on.
  void GiveAway() {
    control_ = nullptr;
    number_.reset();
  }
  Seat& seat() { return seat_; }

 private:
  Runtime& runtime_;
  ControlBlock* control_ = nullptr;
  std::optional<std::uint32_t> number_;
  std::vector<Rank> away_;  // ranks of the world that may get to know the number, and do not map memory
  Seat seat_;
};

// The error of `seats`, which `function` has gathered from ranks of `parent`; equal on all these ranks.
absl::Status CheckSeats(absl::string_view function, const Channel& parent, const std::vector<Rank>& ranks,
                        const std::vector<Seat>& seats) {
  const std::string me = absl::StrCat("rank ", parent.rank(), ": ", function, ": ");
  for (std::size_t i = 0; i < seats.size(); ++i) {
    const Seat& seat = seats[i];
    const Rank rank = ranks[i];
    if (seat.rank != rank || seat.world_rank != parent.peer(rank).world_rank) {
      return absl::DataLossError(absl::StrCat(me, "what rank ", rank, " said of its place in the group is damaged"));
    }
    if (seat.error == Seat::kNone) continue;
    return absl::ResourceExhaustedError(
        seat.error == Seat::kNoRoom
            ? absl::StrCat(me, "rank ", rank,
                           " has no room in its arena for another group; set TUTTI_ARENA_BYTES to a larger size")
            : absl::StrCat(me, "rank ", rank, " is in ", kMaxChannels - 1,
                           " groups, the most there may be, or peers have not closed those that it has closed"));
  }
  return absl::OkStatus();
}

std::vector<GroupMember> MembersOf(const std::vector<Seat>& seats) {
  std::vector<GroupMember> members;
  members.reserve(seats.size());
  for (const Seat& seat : seats) {
    members.push_back({.world_rank = static_cast<Rank>(seat.world_rank),
                       .channel = static_cast<std::uint32_t>(seat.channel),
                       .offset = seat.offset,
                       .generation = static_cast<std::uint64_t>(seat.generation)});
  }
  return members;
}

std::string NameOfGroup(absl::Span<const Rank> members, absl::string_view name) {
  return absl::StrCat("Group '", name, "' of ranks ", absl::StrJoin(members, ", "));
}

absl::Status CheckMembers(absl::Span<const Rank> members, Rank rank, int size) {
  if (members.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", rank, ": Group: members is empty; it must have at least the rank that calls"));
  }
  const auto invalid = [&](const std::string& what) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", rank, ": Group of ranks ", absl::StrJoin(members, ", "), ": ", what));
  };
  absl::flat_hash_set<Rank> seen;
  for (const Rank member : members) {
    if (member < 0 || member >= size) return invalid(absl::StrCat("rank ", member, " must be in 0…", size - 1));
    if (!seen.insert(member).second) return invalid(absl::StrCat("rank ", member, " is named twice"));
  }
  if (!seen.contains(rank)) return invalid("the rank that calls must be among them");
  return absl::OkStatus();
}

}  // namespace

std::unique_ptr<Communicator::Impl> Communicator::Impl::MakeGroup(const std::vector<GroupMember>& members) const {
  std::vector<Rank> world_ranks;
  Rank rank = 0;
  for (const GroupMember& member : members) {
    if (member.world_rank == channel->peer(channel->rank()).world_rank) rank = static_cast<Rank>(world_ranks.size());
    world_ranks.push_back(member.world_rank);
  }
  // No two groups have the same first rank, control block of that rank and generation of that block.
  const std::string keys =
      absl::StrCat("group/", members[0].world_rank, "/", members[0].offset, "/", members[0].generation, "/");
  return std::make_unique<Impl>(runtime, OpenChannel(*runtime, rank, members),
                                MakePrefixStore(runtime->store, keys, std::move(world_ranks)));
}

absl::StatusOr<std::unique_ptr<Communicator::Impl>> Communicator::Impl::Split(int color, int key) {
  if (in_forked_child()) return NotInForkedChild(channel->rank());
  SeatHolder mine(*runtime, *channel);
  mine.seat().color = color;
  mine.seat().key = key;
  if (color >= 0) mine.Open();
  std::vector<Seat> seats(static_cast<std::size_t>(channel->size()));
  Work gather = Call({.collective = Collective::kAllGather, .dtype = DType::kI64, .count = kFields}, &mine.seat(),
                     seats.data(), kOwnCall);
  // No rank signals on the new channel before the barrier below, so on an error nobody waits for anything in the new
  // control block. A lack of memory is the error of this call alone: the communicator that is split stays usable.
  if (absl::Status status = gather.Wait(); !status.ok()) return status;
  std::vector<Rank> ranks(seats.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  if (absl::Status status = CheckSeats("Split", *channel, ranks, seats); !status.ok()) return status;
  std::unique_ptr<Impl> impl;
  absl::Status made;
  if (color >= 0) {
    std::erase_if(seats, [&](const Seat& seat) { return seat.color != color; });
    std::sort(seats.begin(), seats.end(),
              [](const Seat& a, const Seat& b) { return std::tie(a.key, a.rank) < std::tie(b.key, b.rank); });
    impl = MakeGroup(MembersOf(seats));
    mine.GiveAway();
    made = OpenOnDevice(*runtime, *impl->channel, *impl->store);
  }
  // The barrier keeps any rank from signalling on a channel that a peer has not opened.
  if (absl::Status status = Call({.collective = Collective::kBarrier}, nullptr, nullptr, kOwnCall).Wait();
      !status.ok()) {
    return status;
  }
  if (!made.ok()) return made;
  return impl;
}

absl::StatusOr<std::unique_ptr<Communicator::Impl>> Communicator::Impl::Group(absl::Span<const Rank> members,
                                                                              absl::string_view name) {
  if (in_forked_child()) return NotInForkedChild(channel->rank());
  const Rank rank = channel->rank();
  if (absl::Status status = CheckMembers(members, rank, channel->size()); !status.ok()) return status;
  const std::vector<Rank> ranks(members.begin(), members.end());
  const auto place = static_cast<Rank>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
  SeatHolder mine(*runtime, *channel);
  mine.Open();
  // Groups that are made at the same time differ in their members or in their name.
  const std::string key = absl::BytesToHexString(View(Sha256(absl::StrCat(absl::StrJoin(ranks, ","), "/", name))));
  const auto gone = [this] { return runtime->engine->GoneFrom(*channel); };
  // Abort ends this wait, too. The loss of a rank does not: the others may make a group without that rank.
  const bool usable = !absl::IsAborted(channel->sticky().Get());
  const auto aborted = [this, usable] {
    absl::Status status = channel->sticky().Get();
    return usable && absl::IsAborted(status) ? status : absl::OkStatus();
  };
  const std::shared_ptr<Store> meeting =
      MakePrefixStore(MakeLossAwareStore(store, gone, aborted), absl::StrCat("make/", key, "/"), ranks);
  const absl::string_view bytes(reinterpret_cast<const char*>(&mine.seat()), sizeof(Seat));
  const absl::StatusOr<std::vector<std::string>> blobs =
      ExchangeInGroup(*meeting, NameOfGroup(ranks, name), place, {.ranks = ranks, .limit = runtime->timeout}, bytes);
  if (!blobs.ok()) return blobs.status();
  std::vector<Seat> seats(ranks.size(), Seat{.rank = -1});  // CheckSeats takes a seat of rank -1 for damaged
  for (std::size_t i = 0; i < seats.size(); ++i) {
    if ((*blobs)[i].size() == sizeof(Seat)) std::memcpy(&seats[i], (*blobs)[i].data(), sizeof(Seat));
  }
  if (absl::Status status = CheckSeats("Group", *channel, ranks, seats); !status.ok()) return status;
  std::unique_ptr<Impl> impl = MakeGroup(MembersOf(seats));
  mine.GiveAway();
  // Once all members have passed the barrier, the exchange has left nothing in the store that a later exchange of this
  // name would meet.
  absl::Status met = impl->Call({.collective = Collective::kBarrier}, nullptr, nullptr, kOwnCall).Wait();
  if (met.ok()) met = OpenOnDevice(*runtime, *impl->channel, *impl->store);
  if (met.ok()) return impl;
  return absl::Status(met.code(), absl::StrCat(NameOfGroup(ranks, name), ": ", met.message()));
}

}  // namespace tutti
