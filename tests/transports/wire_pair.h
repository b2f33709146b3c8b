// Two ranks of a test that are joined by a wire over TCP connections of this machine.
#ifndef TUTTI_TESTS_TRANSPORTS_WIRE_PAIR_H_
#define TUTTI_TESTS_TRANSPORTS_WIRE_PAIR_H_

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/transports/payload.h"
#include "transports/ucx/wires.h"

namespace tutti::ucx {

// The two ends of a TCP connection whose buffers in the kernel have `buffer` bytes; 0: as many as the kernel likes.
inline std::array<UnsharedFd, 2> Join(int buffer = 0) {
  const auto open = [buffer] {
    UnsharedFd fd(UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)));
    if (buffer > 0) {
      setsockopt(fd.get(), SOL_SOCKET, SO_SNDBUF, &buffer, sizeof(buffer));
      setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUF, &buffer, sizeof(buffer));
    }
    return fd;
  };
  const UnsharedFd listener = open();
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof(address);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  EXPECT_EQ(bind(listener.get(), any, bytes), 0);
  EXPECT_EQ(listen(listener.get(), 1), 0);
  EXPECT_EQ(getsockname(listener.get(), any, &bytes), 0);
  UnsharedFd caller = open();
  EXPECT_EQ(connect(caller.get(), any, bytes), 0);
  return {std::move(caller), UnsharedFd(UniqueFd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)))};
}

// Takes nothing that comes over short wires.
struct NoShortReceiver : ShortReceiver {
  std::byte* BeginFrame(Rank /*peer*/, const ShortHeader& /*header*/) override { return nullptr; }
  bool EndFrame(Rank /*peer*/, const ShortHeader& /*header*/) override { return true; }
};

// One rank of `size`, with wires to one peer. The first of `sockets` is that of the short wire.
struct WiredRank {
  WiredRank(Rank to, std::vector<UnsharedFd> sockets, int size = 2) : peer(to) {
    std::vector<WireSockets> connections;
    connections.push_back({peer, std::move(sockets)});
    EXPECT_TRUE(wires.Watch(std::move(connections), size).ok());
  }

  Wire& wire() { return *wires.To(peer); }
  bool Move() {
    const bool moved = wires.Progress(/*looks=*/true, nothing);
    wires.TakeEnded([this](const WireEnd& end) { (end.receives ? received : sent).push_back(end.operation); });
    return moved;
  }
  // Whether bytes are under way from this rank, or wait here to be read.
  bool HasBytesUnderWay() {
    for (const UnsharedFd& socket : wire().sockets()) {
      int unread = 0;
      if (ioctl(socket.get(), FIONREAD, &unread) == 0 && unread > 0) return true;
    }
    return !wire().IsDelivered();
  }

  const Rank peer;
  NoShortReceiver nothing;
  Wires wires;
  std::vector<std::uint32_t> sent;      // the operations whose sends have ended, in that order
  std::vector<std::uint32_t> received;  // and those whose receives have
};

struct WirePair {
  explicit WirePair(int connections, int buffer = 0) : WirePair(Connections(connections, buffer)) {}

  // Moves bytes until `done`, which must become true.
  void MoveUntil(const std::function<bool()>& done) {
    while (!done()) {
      const bool moved = a.Move();
      if (b.Move() || moved) continue;
      std::array<pollfd, 2> fds = {{{a.wires.fd(), POLLIN, 0}, {b.wires.fd(), POLLIN, 0}}};
      if (done()) return;
      ASSERT_GT(poll(fds.data(), fds.size(), 60'000), 0) << "nothing moves any more";
    }
  }
  // Moves bytes until none can be moved.
  void MoveAll() {
    for (bool moved = true; moved;) {
      moved = a.Move();
      moved = b.Move() || moved || a.HasBytesUnderWay() || b.HasBytesUnderWay();
    }
  }

  WiredRank a, b;

 private:
  using Sockets = std::array<std::vector<UnsharedFd>, 2>;

  explicit WirePair(Sockets sockets) : a(1, std::move(sockets[0])), b(0, std::move(sockets[1])) {}
  static Sockets Connections(int count, int buffer) {
    Sockets sockets;
    for (int i = 0; i < count + 1; ++i) {
      auto [one, other] = Join(buffer);
      sockets[0].push_back(std::move(one));
      sockets[1].push_back(std::move(other));
    }
    return sockets;
  }
};

}  // namespace tutti::ucx

#endif  // TUTTI_TESTS_TRANSPORTS_WIRE_PAIR_H_
