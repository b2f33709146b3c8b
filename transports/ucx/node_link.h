// The links of a node: open sockets between its ranks, through which a rank says goodbye or tells why it aborts. The
// end of a link shows at once that a process has died.
#ifndef TUTTI_TRANSPORTS_UCX_NODE_LINK_H_
#define TUTTI_TRANSPORTS_UCX_NODE_LINK_H_

#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "base/fork.h"
#include "base/unique_fd.h"
#include "transports/ucx/control.h"
#include "transports/ucx/node_rendezvous.h"
#include "tutti/dtype.h"

namespace tutti::ucx {

class NodeLinks {
 public:
  // Takes the sockets of `peers` over, and watches them from now on.
  absl::Status Watch(std::vector<NodePeer>& peers);

  // A descriptor that is readable when Read has something to do; -1 before Watch.
  int fd() const { return epoll_.get(); }

  // Reports, without waiting, the messages that have come, and the end of each link once, as nullptr. One call takes a
  // bounded number of messages of each link; the next call takes the rest. A link ends when its socket closes or its
  // process dies; no child that the process forks keeps the socket.
  void Read(absl::FunctionRef<void(Rank, const Control*)> report);

  // Sends `control` over every open link, or over the link to one rank; never waits.
  void Tell(const Control& control, std::optional<Rank> only = std::nullopt);

  // Ends all links. Destroying the links in a forked child ends none.
  void Close();

 private:
  struct Link {
    Rank rank;
    UnsharedFd socket;
    // pidfd, for the death of a process of which a child holds the socket, forked in the very moment when the socket
    // was made; invalid when the peer's process is not visible from here.
    UniqueFd process;
  };

  void ReadLink(Link& link, bool process_died, absl::FunctionRef<void(Rank, const Control*)> report);

  UniqueFd epoll_;
  std::vector<Link> links_;
};

}  // namespace tutti::ucx

#endif  // TUTTI_TRANSPORTS_UCX_NODE_LINK_H_
