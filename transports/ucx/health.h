// What this rank knows about the others: who said goodbye, who seems dead, and which cause somebody told. Decides what
// Check returns.
#ifndef TUTTI_TRANSPORTS_UCX_HEALTH_H_
#define TUTTI_TRANSPORTS_UCX_HEALTH_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "tutti/dtype.h"

namespace tutti::ucx {

// A rank that dies takes others down with it: they abort and leave, and a third rank sees several ends at about the
// same time. So an end without a goodbye is only a suspicion until `conclude_at`; a cause that arrives before then
// wins, and of several suspicions the first.
class PeerHealth {
 public:
  void Reset(int size) { peers_.assign(static_cast<std::size_t>(size), Peer()); }

  void SaidGoodbye(Rank rank);
  void Suspect(Rank rank, absl::string_view evidence, absl::Time conclude_at);
  void Told(const absl::Status& cause);

  bool said_goodbye(Rank rank) const { return peers_[static_cast<std::size_t>(rank)].goodbye; }
  bool gone(Rank rank) const { return said_goodbye(rank) || peers_[static_cast<std::size_t>(rank)].suspected; }
  // When an open suspicion becomes a verdict; InfiniteFuture when there is none.
  absl::Time due() const;
  // OK until something is known to be wrong; then always the same error.
  absl::Status Verdict(absl::Time now);

 private:
  struct Peer {
    bool goodbye = false;
    bool suspected = false;
  };
  struct Suspicion {
    Rank rank;
    std::string evidence;
    absl::Time conclude_at;
  };

  std::vector<Peer> peers_;
  std::vector<Suspicion> suspicions_;
  absl::Status verdict_;
};

}  // namespace tutti::ucx

#endif  // TUTTI_TRANSPORTS_UCX_HEALTH_H_
