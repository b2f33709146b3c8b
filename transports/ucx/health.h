// The health of the other ranks: which have said goodbye, which seem dead, and which cause a rank has told. It decides
// what Check returns. Times are those of MonotonicNanos.
#ifndef TUTTI_TRANSPORTS_UCX_HEALTH_H_
#define TUTTI_TRANSPORTS_UCX_HEALTH_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "tutti/dtype.h"

namespace tutti::ucx {

// The time that a suspicion waits for a peer to tell the cause: short after the end of a link, which means death;
// longer after an error of UCX, which proves less.
inline constexpr absl::Duration kAfterLinkEnds = absl::Milliseconds(5);
inline constexpr absl::Duration kAfterUcxError = absl::Milliseconds(50);

// A rank that dies takes others down with it: they abort and leave, and a third rank sees several ends at about the
// same time. So an end without a goodbye is only a suspicion until `conclude_at_ns`; a cause that arrives before then
// wins, and of several suspicions the first.
class PeerHealth {
 public:
  void Reset(int size) { peers_.assign(static_cast<std::size_t>(size), Peer()); }

  void SaidGoodbye(Rank rank);
  void Suspect(Rank rank, absl::string_view evidence, std::int64_t conclude_at_ns);
  void Told(const absl::Status& cause);

  bool said_goodbye(Rank rank) const { return peers_[static_cast<std::size_t>(rank)].goodbye; }
  bool gone(Rank rank) const { return said_goodbye(rank) || peers_[static_cast<std::size_t>(rank)].suspected; }
  // The time when an open suspicion becomes a verdict; kNeverNanos when there is none.
  std::int64_t due_ns() const;
  // The error that Check returns: OK until something is known to be wrong; then always the same error.
  absl::Status Verdict(std::int64_t now_ns);

 private:
  struct Peer {
    bool goodbye = false;
    bool suspected = false;
  };
  struct Suspicion {
    Rank rank;
    std::string evidence;
    std::int64_t conclude_at_ns;
  };

  std::vector<Peer> peers_;
  std::vector<Suspicion> suspicions_;
  absl::Status verdict_;
};

}  // namespace tutti::ucx

#endif  // TUTTI_TRANSPORTS_UCX_HEALTH_H_
