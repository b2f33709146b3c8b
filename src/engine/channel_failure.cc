// How a channel that fails tells its peers, and learns from them.
#include <algorithm>

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
  const absl::string_view text = absl::string_view(cause.message()).substr(0, FailureCause::kMostBytes);
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
    // The peer may have closed this channel and opened the block for another one: that one's failure stays.
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
    for (std::atomic<std::uint32_t>* const word : {&theirs.doorbell, &theirs.thread_calls}) {
      word->fetch_add(1, std::memory_order_seq_cst);
      FutexWakeAll(*word);
    }
  }
}

absl::Status Channel::FailureOfPeer() const {
  const Rank by = static_cast<Rank>(FailedBy(control_->failed_by.load(std::memory_order_acquire))) - 1;
  const bool known = by >= 0 && by < size() && peer(by).control != nullptr;
  const FailureCause* const theirs = known ? &peer(by).control->failure : nullptr;
  const std::uint64_t code = known ? theirs->code.load(std::memory_order_acquire) : 0;
  const auto number = static_cast<std::uint32_t>(code);
  if (!known || code >> 32 != (peer(by).generation & 0xffffffff) || number == 0) {
    return absl::DataLossError(
        absl::StrCat("rank ", by, " of the group is said to have given it up, but gives no cause"));
  }
  const std::size_t bytes = std::min<std::size_t>(theirs->bytes, FailureCause::kMostBytes);
  return ToldBy(peer(by).world_rank,
                absl::Status(static_cast<absl::StatusCode>(number), absl::string_view(theirs->text.data(), bytes)));
}

bool Channel::PeersTouchMemory() const {
  return std::any_of(neighbours_.begin(), neighbours_.end(), [this](const Neighbour& neighbour) {
    if (neighbour.touching % 2 == 0) return false;
    if (neighbour.presence->touching.load(std::memory_order_seq_cst) != neighbour.touching) return false;
    return !engine_.transport().HasEnded(neighbour.world_rank);
  });
}

void Channel::SayGoodbye() {
  for (const Peer& peer : peers_) {
    if (peer.control == nullptr) engine_.transport().Tell(peer.world_rank, peer.channel, absl::OkStatus());
  }
}

}  // namespace tutti
