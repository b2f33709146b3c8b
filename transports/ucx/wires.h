// All wires of one rank (wire.h), by peer.
#ifndef TUTTI_TRANSPORTS_UCX_WIRES_H_
#define TUTTI_TRANSPORTS_UCX_WIRES_H_

#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "base/unique_fd.h"
#include "transports/ucx/wire.h"
#include "tutti/dtype.h"

namespace tutti::ucx {

// The connections to one rank.
struct WireSockets {
  Rank peer = 0;
  std::vector<UniqueFd> sockets;
};

class Wires {
 public:
  // Takes the connections over, in a world of `size` ranks, and watches them from now on.
  absl::Status Watch(std::vector<WireSockets> connections, int size);

  // The wire to `peer`; nullptr where there is none: `peer` is on this node, or its wire has been closed.
  Wire* To(Rank peer) const;
  void ForEach(absl::FunctionRef<void(Rank, Wire&)> visit);

  // A descriptor that is readable when Progress may have something to do; -1 before Watch.
  int fd() const { return epoll_.get(); }

  // Moves a bounded number of bytes over each wire that is ready; true when any moved. Looks for what has come in each
  // call while messages are under way, and seldom otherwise, unless `looks`. Visits no wire that is not ready.
  bool Progress(bool looks);

  // Visits the messages that have ended since the last call.
  void TakeEnded(absl::FunctionRef<void(const WireEnd&)> visit);
  // Visits the wires that have broken since the last call and are not closed.
  void TakeBroken(absl::FunctionRef<void(Rank, Wire&)> visit);

  void Close(Rank peer);
  void CloseAll();

 private:
  void Look();

  UniqueFd epoll_;
  WireNews news_;
  std::vector<std::unique_ptr<Wire>> wires_;  // by rank; empty where no rank has a wire
  std::vector<Rank> peers_;                   // the ranks that have wires
  // Swapped with the lists of `news_`, so that nothing allocates.
  std::vector<WireEnd> visited_;
  std::vector<Rank> in_turn_;
  int unseen_ = 0;  // calls of Progress since the last look
};

}  // namespace tutti::ucx

#endif  // TUTTI_TRANSPORTS_UCX_WIRES_H_
