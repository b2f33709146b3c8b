#include "engine/hang.h"

#include <vector>

#include "base/clock.h"

namespace tutti {
namespace {

// Far longer than the pause between two heartbeats of a rank that waits, even on a busy machine.
constexpr std::int64_t kStaleNanos = 500'000'000;

}  // namespace

Rank FindStalledRank(absl::Span<Presence* const> presence, Rank self, Rank direct) {
  const std::int64_t now_ns = MonotonicNanos();
  std::vector<bool> seen(presence.size());
  seen[self] = true;
  Rank rank = direct;
  while (!seen[rank]) {
    seen[rank] = true;
    const Presence* const theirs = presence[rank];
    if (theirs == nullptr) return rank;
    const Rank next = theirs->waits_for.load(std::memory_order_relaxed);
    const bool waits = next >= 0 && next < static_cast<Rank>(presence.size());
    if (!waits || now_ns - theirs->heartbeat_ns.load(std::memory_order_relaxed) > kStaleNanos) return rank;
    rank = next;
  }
  return direct;  // a circle: they wait for each other, or for this rank
}

}  // namespace tutti
