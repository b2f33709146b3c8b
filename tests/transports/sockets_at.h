// The sockets of this process, by their addresses as the kernel gives them.
#ifndef TUTTI_TESTS_TRANSPORTS_SOCKETS_AT_H_
#define TUTTI_TESTS_TRANSPORTS_SOCKETS_AT_H_

#include <linux/sockios.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/descriptors.h"

namespace tutti {

// The sockets to which `address_of`, getsockname or getpeername, gives `address`.
inline std::vector<int> SocketsWith(const std::string& address, decltype(getsockname)* address_of) {
  std::vector<int> found;
  for (const int fd : OpenDescriptors()) {
    std::string its_own(address.size(), '\0');
    auto bytes = static_cast<socklen_t>(its_own.size());
    if (address_of(fd, reinterpret_cast<sockaddr*>(its_own.data()), &bytes) == 0 && its_own == address) {
      found.push_back(fd);
    }
  }
  return found;
}
// The socket that listens at `address`, and those that it has accepted.
inline std::vector<int> SocketsAt(const std::string& address) { return SocketsWith(address, getsockname); }
// The other ends of what the socket that listens, or has listened, at `address` has accepted.
inline std::vector<int> SocketsConnectedTo(const std::string& address) { return SocketsWith(address, getpeername); }

// Waits until the kernel of the other end has all that has been written to `socket`, a TCP connection.
inline void AwaitDelivery(int socket) {
  int unacknowledged = 1;
  while (ioctl(socket, SIOCOUTQ, &unacknowledged) == 0 && unacknowledged > 0) std::this_thread::yield();
}
// Waits like AwaitDelivery for each TCP connection of this process.
inline void AwaitAllDelivery() {
  for (const int fd : OpenDescriptors()) {
    int protocol = 0;
    socklen_t bytes = sizeof(protocol);
    if (getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &bytes) == 0 && protocol == IPPROTO_TCP) AwaitDelivery(fd);
  }
}

// The number of those sockets, which `sockets` counts, that a child keeps which is forked now; -1 when the child did
// not end well.
inline int SocketsKeptByAChild(const std::function<std::size_t()>& sockets) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) _exit(static_cast<int>(sockets()));
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// The address of a socket of the abstract name `name`.
inline std::string AbstractAddress(const std::string& name) {
  const auto family = static_cast<sa_family_t>(AF_UNIX);
  return std::string(reinterpret_cast<const char*>(&family), sizeof(family)) + '\0' + name;
}

}  // namespace tutti

#endif  // TUTTI_TESTS_TRANSPORTS_SOCKETS_AT_H_
