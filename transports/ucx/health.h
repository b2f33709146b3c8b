// The health of the other ranks: which have said goodbye, which seem dead, and which are lost. PeerHealth makes the
// list that Check returns. Times are those of MonotonicNanos.
#ifndef TUTTI_TRANSPORTS_UCX_HEALTH_H_
#define TUTTI_TRANSPORTS_UCX_HEALTH_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "tutti/transport.h"

namespace tutti::ucx {

// The time that a suspicion waits for a peer to tell the cause: short after the end of a link, which means death;
// longer after an error of UCX or of a wire, which proves less.
inline constexpr absl::Duration kAfterLinkEnds = absl::Milliseconds(5);
inline constexpr absl::Duration kAfterError = absl::Milliseconds(50);

// A rank that dies takes others down with it: they abort and leave, and a third rank sees several ends at about the
// same time. So an end without a goodbye is only a suspicion until `conclude_at_ns`; a cause that the same peer tells
// before then wins, and losses are listed in the order in which the ends were seen.
class PeerHealth {
 public:
  void Reset(int size) { peers_.assign(static_cast<std::size_t>(size), Peer()); }

  void SaidGoodbye(Rank rank);
  void SuspectDeath(Rank rank, absl::string_view evidence, std::int64_t conclude_at_ns);
  // A suspicion that becomes a loss with `cause`.
  void Suspect(Rank rank, absl::Status cause, std::int64_t conclude_at_ns);
  // Lists the loss of a rank at once, unless it is listed.
  void Lose(Rank rank, const absl::Status& cause);
  // Makes losses of the suspicions that are due, and of those that were recorded before them.
  void Conclude(std::int64_t now_ns);

  bool said_goodbye(Rank rank) const { return peer(rank).goodbye; }
  bool lost(Rank rank) const { return !peer(rank).cause.ok(); }
  bool gone(Rank rank) const { return said_goodbye(rank) || lost(rank) || peer(rank).suspected; }
  // The cause with which a rank was lost; OK for a rank that is not lost.
  const absl::Status& cause(Rank rank) const { return peer(rank).cause; }
  // All losses, in the order in which they were found.
  const std::vector<Loss>& losses() const { return losses_; }
  // The time when an open suspicion becomes a loss; kNeverNanos when there is none.
  std::int64_t due_ns() const;

 private:
  struct Peer {
    bool goodbye = false;
    bool suspected = false;
    absl::Status cause;
  };
  struct Suspicion {
    Rank rank;
    absl::Status cause;
    std::int64_t conclude_at_ns;
  };

  const Peer& peer(Rank rank) const { return peers_[static_cast<std::size_t>(rank)]; }
  void Forget(Rank rank);

  std::vector<Peer> peers_;
  std::vector<Suspicion> suspicions_;  // in the order in which suspicions were recorded
  std::vector<Loss> losses_;
};

}  // namespace tutti::ucx

#endif  // TUTTI_TRANSPORTS_UCX_HEALTH_H_
