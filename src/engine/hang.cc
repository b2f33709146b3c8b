#include "engine/hang.h"

#include <atomic>
#include <string>

#include "absl/strings/str_cat.h"

namespace tutti {
namespace {

// Far longer than the pause between two heartbeats of a rank that waits, even on a busy machine.
constexpr std::int64_t kStaleNanos = 500'000'000;

}  // namespace

std::optional<Rank> FindStalledRank(int size, Rank self, Rank direct,
                                    absl::FunctionRef<std::optional<Rank>(Rank)> waits_for) {
  Rank rank = direct;
  for (int links = 0; links < size && rank != self; ++links) {  // more links than ranks are a circle
    const std::optional<Rank> next = waits_for(rank);
    if (!next.has_value() || *next < 0 || *next >= size) return rank;
    rank = *next;
  }
  return std::nullopt;
}

std::optional<Rank> WaitsFor(const Presence& presence, std::int64_t now_ns) {
  const Rank rank = presence.waits_for.load(std::memory_order_relaxed);
  if (rank < 0 || now_ns - presence.heartbeat_ns.load(std::memory_order_relaxed) > kStaleNanos) return std::nullopt;
  return rank;
}

std::string TextOfLeaver(Rank world_rank) {
  return absl::StrCat("rank ", world_rank, " has left (it destroyed its communicator, or its program has ended)");
}

}  // namespace tutti
