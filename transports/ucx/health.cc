#include "transports/ucx/health.h"

#include <algorithm>

#include "base/clock.h"
#include "transports/errors.h"

namespace tutti::ucx {

void PeerHealth::SaidGoodbye(Rank rank) {
  peers_[static_cast<std::size_t>(rank)].goodbye = true;
  std::erase_if(suspicions_, [rank](const Suspicion& s) { return s.rank == rank; });
}

void PeerHealth::Suspect(Rank rank, absl::string_view evidence, std::int64_t conclude_at_ns) {
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  if (peer.goodbye || peer.suspected) return;
  peer.suspected = true;
  suspicions_.push_back({rank, std::string(evidence), conclude_at_ns});
}

void PeerHealth::Told(const absl::Status& cause) {
  if (verdict_.ok()) verdict_ = cause;
}

std::int64_t PeerHealth::due_ns() const {
  if (!verdict_.ok() || suspicions_.empty()) return kNeverNanos;
  const auto earlier = [](const Suspicion& a, const Suspicion& b) { return a.conclude_at_ns < b.conclude_at_ns; };
  return std::min_element(suspicions_.begin(), suspicions_.end(), earlier)->conclude_at_ns;
}

absl::Status PeerHealth::Verdict(std::int64_t now_ns) {
  if (verdict_.ok() && !suspicions_.empty() && now_ns >= due_ns())
    verdict_ = Died(suspicions_.front().rank, suspicions_.front().evidence);
  return verdict_;
}

}  // namespace tutti::ucx
