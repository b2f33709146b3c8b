// All wires and short wires of one rank (wire.h, short_wire.h), by peer.
#ifndef TUTTI_TRANSPORTS_UCX_WIRES_H_
#define TUTTI_TRANSPORTS_UCX_WIRES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "base/fork.h"
#include "base/unique_fd.h"
#include "transports/ucx/short_wire.h"
#include "transports/ucx/wire.h"
#include "transports/ucx/wire_news.h"
#include "tutti/dtype.h"

namespace tutti::ucx {

// The connections to one rank.
struct WireSockets {
  Rank peer = 0;
  std::vector<UnsharedFd> sockets;  // the first is that of the short wire, the others are those of the wire
};

class Wires {
 public:
  // Takes the connections to some peers over, two or more to each, in a world of `size` ranks, and watches them from
  // now on.
  absl::Status Watch(std::vector<WireSockets> connections, int size);

  // The wire to `peer`; nullptr where there is none: `peer` is on this node, or its wire has been closed.
  Wire* To(Rank peer) const;
  // The short wire to `peer`; nullptr where there is none.
  ShortWire* ShortTo(Rank peer) const;
  void ForEach(absl::FunctionRef<void(Rank, Wire&, ShortWire&)> visit);

  // A descriptor that is readable when Progress may have something to do; -1 before Watch.
  int fd() const { return epoll_.get(); }

  // Moves a bounded number of bytes over each wire that is ready; true when any moved. What comes over short wires goes
  // to `receiver`. Looks for what has come in each call while messages are under way on the wires, and seldom
  // otherwise, unless `looks`. Visits no wire that is not ready.
  bool Progress(bool looks, ShortReceiver& receiver);

  // Visits the messages that have ended since the last call.
  void TakeEnded(absl::FunctionRef<void(const WireEnd&)> visit);
  // Visits the wires that have broken since the last call and are not closed.
  void TakeBroken(absl::FunctionRef<void(Rank, Wire&)> visit);
  // Visits the short wires over which, since the last call, nothing more comes, and that are not closed.
  void TakeShortEnded(absl::FunctionRef<void(Rank, ShortWire&)> visit);

  // Whether frames for which no Send waits, wait for room in the kernel.
  bool holds_unawaited() const { return news_.unawaited > 0; }
  // Whether there are no wires.
  bool empty() const { return peers_.empty(); }
  void Close(Rank peer);
  void CloseAll();

 private:
  struct WiresToPeer {
    WiresToPeer(Rank peer, UnsharedFd short_socket, std::vector<UnsharedFd> sockets, std::int64_t window,
                WireNews& news)
        : wire(peer, std::move(sockets), window, news), short_wire(peer, std::move(short_socket), news) {}

    Wire wire;
    ShortWire short_wire;
  };

  absl::Status Watch(int socket, std::uint64_t key);
  WiresToPeer* Both(Rank peer) const;
  void Look();

  UniqueFd epoll_;
  WireNews news_;
  std::vector<std::unique_ptr<WiresToPeer>> wires_;  // by rank; empty where no rank has a wire
  std::vector<Rank> peers_;                          // the ranks that have wires
  // What has come over a short wire, until it is taken in.
  static constexpr std::size_t kShortBuffer = 16 << 10;
  std::unique_ptr<std::byte[]> short_buffer_;
  // Swapped with the lists of `news_`, so that nothing allocates.
  std::vector<WireEnd> visited_;
  std::vector<Rank> in_turn_;
  std::vector<Rank> short_in_turn_;
  int unseen_ = 0;  // calls of Progress since the last look
};

}  // namespace tutti::ucx

#endif  // TUTTI_TRANSPORTS_UCX_WIRES_H_
