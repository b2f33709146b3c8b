// The open sockets between the ranks of one node: through them a rank says goodbye or why it aborts, and their end
// shows at once that a process has died.
#ifndef TUTTI_TRANSPORTS_UCX_NODE_LINK_H_
#define TUTTI_TRANSPORTS_UCX_NODE_LINK_H_

#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "base/unique_fd.h"
#include "transports/ucx/control.h"
#include "transports/ucx/node_rendezvous.h"
#include "tutti/dtype.h"

namespace tutti::ucx {

class NodeLinks {
 public:
  // Takes the sockets of `peers`.
  absl::Status Watch(std::vector<NodePeer>& peers);

  // Readable when Read has something to do; -1 before Watch.
  int fd() const { return epoll_.get(); }

  // Reports, without waiting, each message that has come, and the end of each link (nullptr) once. A link ends when its
  // socket closes or its process dies, even as a zombie or with its sockets held open by children that it has forked.
  void Read(absl::FunctionRef<void(Rank, const Control*)> report);

  // Sends `control` over every open link; never waits.
  void Tell(const Control& control);

 private:
  struct Link {
    Rank rank;
    UniqueFd socket;
    UniqueFd process;  // pidfd; invalid when the peer's process is not visible from here
  };

  void ReadLink(Link& link, bool process_died, absl::FunctionRef<void(Rank, const Control*)> report);

  UniqueFd epoll_;
  std::vector<Link> links_;
};

}  // namespace tutti::ucx

#endif  // TUTTI_TRANSPORTS_UCX_NODE_LINK_H_
