// How a channel that fails tells its peers, and learns from them.
#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/futex.h"
#include "base/told_by.h"
#include "engine/channel.h"
#include "engine/engine.h"

namespace tutti {
namespace {

// Sets the upper half of a word to a generation, of which 32 bits are enough to tell those of one block apart.
std::uint64_t Pack(std::uint64_t generation, std::uint32_t value) { return generation << 32 | value; }

}  // namespace

void Channel::TellFailure(const absl::Status& cause) {
  FailureCause& mine = control_->failure;
  mine.code.store(0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  const absl::string_view text = absl::string_view(cause.message()).substr(0, FailureCause::kMaxBytes);
  std::copy(text.begin(), text.end(), mine.text.begin());
  mine.bytes = static_cast<std::uint32_t>(text.size());
  mine.code.store(Pack(generation_, static_cast<std::uint32_t>(cause.raw_code())), std::memory_order_release);
  for (Rank rank = 0; rank < size(); ++rank) {
    const Peer& p = peer(rank);
    if (rank == rank_) continue;
    if (p.control == nullptr) {
      engine_.transport().Tell(p.world_rank, p.channel, cause);
      continue;
    }
    // The peer may have closed this channel and opened the block for another channel, whose failure must stay.
    const std::uint64_t told = Pack(p.generation, static_cast<std::uint32_t>(rank_) + 1);
    std::atomic<std::uint64_t>& theirs = p.control->failed_by;
    std::uint64_t before = theirs.load(std::memory_order_seq_cst);
    while (before >> 32 < (told >> 32) || before == 0) {
      if (theirs.compare_exchange_weak(before, told, std::memory_order_seq_cst)) break;
    }
  }
  for (Neighbour& neighbour : neighbours_) {
    Presence& theirs = *neighbour.presence;
    neighbour.touching = theirs.touching.load(std::memory_order_seq_cst);
    Ring(neighbour);
    theirs.thread_calls.fetch_add(1, std::memory_order_seq_cst);
    FutexWakeAll(theirs.thread_calls);
  }
}

absl::Status Channel::FailureOfPeer() const {
  const Rank by = static_cast<Rank>(FailedBy(control_->failed_by.load(std::memory_order_acquire))) - 1;
  const bool known = by >= 0 && by < size() && peer(by).control != nullptr;
  const FailureCause* const theirs = known ? &peer(by).control->failure : nullptr;
  const std::uint64_t code = known ? theirs->code.load(std::memory_order_acquire) : 0;
  const bool current = known && code >> 32 == (peer(by).generation & 0xffffffff);
  const std::size_t bytes = current ? std::min<std::size_t>(theirs->bytes, FailureCause::kMaxBytes) : 0;
  const std::string text = current ? std::string(theirs->text.data(), bytes) : "";
  std::atomic_thread_fence(std::memory_order_acquire);
  // The peer may have closed this channel since, and opened its block for another channel that failed too.
  if (!current || theirs->code.load(std::memory_order_relaxed) != code) {
    const std::string who = known ? absl::StrCat("rank ", peer(by).world_rank) : "a rank that is not in the group";
    return absl::UnavailableError(absl::StrCat(who, " has given the group up and left it"));
  }
  // Another process has written the code: an OK, or a code that Abseil does not know, is no error to pass on.
  const std::uint64_t number = code & 0xffffffff;
  const bool is_error = number > 0 && number <= static_cast<std::uint64_t>(absl::StatusCode::kUnauthenticated);
  const auto status_code = is_error ? static_cast<absl::StatusCode>(number) : absl::StatusCode::kUnknown;
  return ToldBy(peer(by).world_rank, absl::Status(status_code, text));
}

bool Channel::PeersTouchMemory() const {
  return std::any_of(neighbours_.begin(), neighbours_.end(), [this](const Neighbour& neighbour) {
    if (neighbour.touching % 2 == 0) return false;
    if (neighbour.presence->touching.load(std::memory_order_seq_cst) != neighbour.touching) return false;
    return !engine_.transport().HasEnded(neighbour.world_rank);
  });
}

std::vector<Rank> Channel::UnmappedPeers() const {
  std::vector<Rank> unmapped;
  for (const Peer& peer : peers_) {
    if (peer.control == nullptr) unmapped.push_back(peer.world_rank);
  }
  return unmapped;
}

std::vector<Rank> Channel::Away() const {
  std::vector<Rank> away = UnmappedPeers();
  std::erase_if(away, [this](Rank world_rank) { return left_[static_cast<std::size_t>(*RankOf(world_rank))]; });
  return away;
}

void Channel::SayGoodbye() {
  for (const Peer& peer : peers_) {
    if (peer.control == nullptr) engine_.transport().Tell(peer.world_rank, peer.channel, absl::OkStatus());
  }
}

}  // namespace tutti
