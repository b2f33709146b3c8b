// How an engine that fails tells the peers that map its memory, and gets the memory of its calls back from them.
#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/futex.h"
#include "base/told_by.h"
#include "engine/channel.h"
#include "engine/engine.h"
#include "memory/arena.h"

namespace tutti {
namespace {

// What peers may take to leave the memory of calls that fail, before it is taken out of their reach.
constexpr absl::Duration kGrace = absl::Milliseconds(40);
// Where that cannot be done they have all the time that a step may take, on however busy a machine.
constexpr absl::Duration kLongGrace = absl::Seconds(30);
constexpr absl::Duration kLook = absl::Microseconds(200);

}  // namespace

absl::Status Engine::FailureOfPeer() const {
  const Rank peer = presence_.failed_peer.load(std::memory_order_acquire) - 1;
  const Presence* const theirs = peer >= 0 && static_cast<std::size_t>(peer) < options_.presence.size()
                                     ? options_.presence[static_cast<std::size_t>(peer)]
                                     : nullptr;
  const std::int32_t code = theirs != nullptr ? theirs->failure.code.load(std::memory_order_acquire) : 0;
  if (code <= 0) return absl::DataLossError(absl::StrCat("rank ", peer, " is said to have failed, but gives no cause"));
  const std::size_t bytes = std::min<std::size_t>(theirs->failure.bytes, FailureCause::kMostBytes);
  return ToldBy(
      peer, absl::Status(static_cast<absl::StatusCode>(code), absl::string_view(theirs->failure.text.data(), bytes)));
}

void Engine::TellPeersInMemory(const absl::Status& cause) {
  const absl::string_view text = cause.message().substr(0, FailureCause::kMostBytes);
  std::copy(text.begin(), text.end(), presence_.failure.text.begin());
  presence_.failure.bytes = static_cast<std::uint32_t>(text.size());
  presence_.failure.code.store(cause.raw_code(), std::memory_order_release);
  for (Presence* const theirs : options_.presence) {
    if (theirs == nullptr || theirs == &presence_) continue;
    std::int32_t nobody = 0;
    theirs->failed_peer.compare_exchange_strong(nobody, options_.rank + 1, std::memory_order_seq_cst);
    theirs->doorbell.fetch_add(1, std::memory_order_seq_cst);
    FutexWakeAll(theirs->doorbell);
  }
}

bool Engine::PeersTouchMemory() {
  for (std::size_t rank = 0; rank < options_.presence.size(); ++rank) {
    const Presence* const theirs = options_.presence[rank];
    if (theirs == nullptr || theirs == &presence_ || theirs->touching.load(std::memory_order_seq_cst) == 0) continue;
    if (!transport_->HasEnded(static_cast<Rank>(rank))) return true;
  }
  return false;
}

bool Engine::PeersLeaveMemoryBy(std::int64_t end_ns) {
  while (PeersTouchMemory()) {
    if (MonotonicNanos() >= end_ns) return false;
    absl::SleepFor(kLook);
  }
  return true;
}

void Engine::TakeMemoryBack(std::int64_t told_ns) {
  if (PeersLeaveMemoryBy(NanosAfter(told_ns, kGrace))) return;
  bool all_secluded = true;
  for (const Run* const run : executor_->active()) {
    const absl::Span<std::byte> output = run->output_lent_to_peers();
    if (output.empty()) continue;
    const absl::Span<std::byte> pages = arena_->OwnPagesOf(output.data(), static_cast<std::int64_t>(output.size()));
    if (pages.empty()) continue;
    all_secluded &= transport_->Seclude(pages.data(), static_cast<std::int64_t>(pages.size())).ok();
  }
  // The peers are threads, which go on; or there is no memory for a copy, and time is the next best thing.
  if (!all_secluded) PeersLeaveMemoryBy(NanosAfter(told_ns, kLongGrace));
}

}  // namespace tutti
