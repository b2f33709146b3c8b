#include "transports/ucx/health.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "transports/errors.h"

namespace tutti::ucx {

void PeerHealth::Forget(Rank rank) {
  std::erase_if(suspicions_, [rank](const Suspicion& s) { return s.rank == rank; });
}

void PeerHealth::SaidGoodbye(Rank rank) {
  peers_[static_cast<std::size_t>(rank)].goodbye = true;
  Forget(rank);
}

void PeerHealth::SuspectDeath(Rank rank, absl::string_view evidence, std::int64_t conclude_at_ns) {
  Suspect(rank, Died(rank, evidence), conclude_at_ns);
}

void PeerHealth::Suspect(Rank rank, absl::Status cause, std::int64_t conclude_at_ns) {
  if (gone(rank)) return;
  peers_[static_cast<std::size_t>(rank)].suspected = true;
  suspicions_.push_back({rank, std::move(cause), conclude_at_ns});
}

void PeerHealth::Lose(Rank rank, const absl::Status& cause) {
  if (lost(rank)) return;
  peers_[static_cast<std::size_t>(rank)].cause = cause;
  losses_.push_back({rank, cause});
  Forget(rank);
}

std::int64_t PeerHealth::due_ns() const {
  if (suspicions_.empty()) return kNeverNanos;
  const auto earlier = [](const Suspicion& a, const Suspicion& b) { return a.conclude_at_ns < b.conclude_at_ns; };
  return std::min_element(suspicions_.begin(), suspicions_.end(), earlier)->conclude_at_ns;
}

void PeerHealth::Conclude(std::int64_t now_ns) {
  const auto due = [now_ns](const Suspicion& s) { return now_ns >= s.conclude_at_ns; };
  const auto last = std::find_if(suspicions_.rbegin(), suspicions_.rend(), due);
  std::vector<Suspicion> open(last.base(), suspicions_.end());
  suspicions_.erase(last.base(), suspicions_.end());
  for (const Suspicion& concluded : std::exchange(suspicions_, std::move(open))) {
    Lose(concluded.rank, concluded.cause);
  }
}

}  // namespace tutti::ucx
