// The rendezvous of the ranks of one node: each has a socket in the abstract namespace, over which it hands its region
// to the peers that know its nonce and run as the same user. Of two ranks the one with the higher number connects to
// the other. No child that is forked meanwhile keeps a connection.
#ifndef TUTTI_TRANSPORTS_UCX_NODE_RENDEZVOUS_H_
#define TUTTI_TRANSPORTS_UCX_NODE_RENDEZVOUS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/fork.h"
#include "base/unique_fd.h"
#include "memory/shared_region.h"
#include "transports/ucx/address.h"
#include "transports/ucx/process_memory.h"
#include "tutti/dtype.h"

namespace tutti::ucx {

// A peer on this node that has been met.
struct NodePeer {
  Rank rank = 0;
  UnsharedFd socket;  // stays open for as long as both ranks live: its end is how death is noticed
  Mapping region;
  UniqueFd wake;         // the event descriptor that ends the peer's sleep: see WakeSleeper
  ProcessMemory memory;  // of the peer's process, where it can be read
};

// A peer on this node that is to be met.
struct NodeMember {
  Rank rank = 0;
  const PeerAddress* address = nullptr;
};

// Ends the sleep, or the next one, of the rank that sleeps on the event descriptor `wake`. Any thread may call it.
void WakeSleeper(const UniqueFd& wake);

class NodeRendezvous {
 public:
  // Opens this rank's socket, under a random name.
  static absl::StatusOr<NodeRendezvous> Open();

  const std::string& socket_name() const { return name_; }
  const Nonce& nonce() const { return nonce_; }

  // Meets every member (all ranks of the node but this one), by `end_ns` (of MonotonicNanos) whatever strangers do, and
  // hands this rank's region and `wake`, the event descriptor on which the rank sleeps, to each; then closes the socket
  // to strangers. Unavailable and DeadlineExceeded name the rank that could not be met; PermissionDenied names the rank
  // that runs as another user, ResourceExhausted the limit of the system to raise. `watch`: see Transport::Connect.
  absl::StatusOr<std::vector<NodePeer>> Meet(
      Rank rank, const SharedRegion& region, const UniqueFd& wake, absl::Span<const NodeMember> members,
      std::int64_t end_ns, absl::FunctionRef<absl::Status()> watch = [] { return absl::OkStatus(); });

 private:
  UnsharedFd listener_;
  std::string name_;
  Nonce nonce_ = {};
};

}  // namespace tutti::ucx

#endif  // TUTTI_TRANSPORTS_UCX_NODE_RENDEZVOUS_H_
