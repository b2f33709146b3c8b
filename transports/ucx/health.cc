#include "transports/ucx/health.h"

#include <algorithm>

#include "transports/ucx/status.h"

namespace tutti::ucx {

void PeerHealth::SaidGoodbye(Rank rank) {
  peers_[static_cast<std::size_t>(rank)].goodbye = true;
  std::erase_if(suspicions_, [rank](const Suspicion& s) { return s.rank == rank; });
}

void PeerHealth::Suspect(Rank rank, absl::string_view evidence, absl::Time conclude_at) {
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  if (peer.goodbye || peer.suspected) return;
  peer.suspected = true;
  suspicions_.push_back({rank, std::string(evidence), conclude_at});
}

void PeerHealth::Told(const absl::Status& cause) {
  if (verdict_.ok()) verdict_ = cause;
}

absl::Time PeerHealth::due() const {
  if (!verdict_.ok() || suspicions_.empty()) return absl::InfiniteFuture();
  const auto earlier = [](const Suspicion& a, const Suspicion& b) { return a.conclude_at < b.conclude_at; };
  return std::min_element(suspicions_.begin(), suspicions_.end(), earlier)->conclude_at;
}

absl::Status PeerHealth::Verdict(absl::Time now) {
  if (verdict_.ok() && !suspicions_.empty() && now >= due())
    verdict_ = Died(suspicions_.front().rank, suspicions_.front().evidence);
  return verdict_;
}

}  // namespace tutti::ucx
