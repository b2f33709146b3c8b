#include "store/socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/keep_alive.h"

namespace tutti {
namespace {

absl::Status Unavailable(absl::string_view what, int error) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(error)));
}

absl::Status WaitFor(int fd, short events, std::int64_t end_ns) {
  while (true) {
    const absl::Duration left = LeftUntil(end_ns);
    // The wait is rounded up, so that poll does not return just before the deadline, and made in slices of an hour,
    // because poll takes an int of milliseconds.
    const std::int64_t wait = std::max<std::int64_t>(absl::ToInt64Milliseconds(std::min(left, absl::Hours(1))) + 1, 0);
    pollfd poll{fd, events, 0};
    const int ready = ::poll(&poll, 1, left <= absl::ZeroDuration() ? 0 : static_cast<int>(wait));
    if (ready > 0) return absl::OkStatus();
    if (ready < 0 && errno != EINTR) return Unavailable("poll", errno);
    if (ready == 0 && LeftUntil(end_ns) <= absl::ZeroDuration())
      return absl::DeadlineExceededError("no answer in time");
  }
}

// Whether the two ends of a connection are one socket. The kernel connects a socket so when nobody listens at the port
// and the socket's own port, which the kernel chooses, happens to be that port.
bool HasMetItself(int fd) {
  sockaddr_storage own{}, peer{};
  socklen_t own_bytes = sizeof(own), peer_bytes = sizeof(peer);
  return ::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &own_bytes) == 0 &&
         ::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_bytes) == 0 && own_bytes == peer_bytes &&
         std::memcmp(&own, &peer, own_bytes) == 0;
}

absl::StatusOr<UnsharedFd> ConnectOne(const addrinfo& address, std::int64_t end_ns) {
  UnsharedFd fd(UniqueFd(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)));
  if (!fd.valid()) return Unavailable("socket", errno);
  const int on = 1;
  ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  KeepAlive(fd.get());
  if (::connect(fd.get(), address.ai_addr, address.ai_addrlen) != 0 && errno != EINPROGRESS) {
    return Unavailable("connect", errno);
  }
  if (absl::Status status = WaitFor(fd.get(), POLLOUT, end_ns); !status.ok()) return status;
  int error = 0;
  socklen_t length = sizeof(error);
  ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  if (error != 0) return Unavailable("connect", error);
  if (HasMetItself(fd.get())) {
    // An ordinary close would hold the port for a minute, against the server that the others wait for.
    const linger reset = {.l_onoff = 1, .l_linger = 0};
    ::setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    return absl::UnavailableError("connect: nobody listens, and the socket has met itself");
  }
  return fd;
}

}  // namespace

absl::StatusOr<std::pair<std::string, std::string>> SplitAddress(absl::string_view address) {
  const std::size_t colon = address.rfind(':');
  absl::string_view host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  int port = 0;
  if (colon == address.npos || host.empty() || !absl::SimpleAtoi(address.substr(colon + 1), &port) || port < 1 ||
      port > 65535) {
    return absl::InvalidArgumentError(absl::StrCat("'", address, "' is no address; expected host:port"));
  }
  return std::pair{std::string(host), std::string(address.substr(colon + 1))};
}

std::string JoinAddress(absl::string_view host, absl::string_view port) {
  return host.find(':') == host.npos ? absl::StrCat(host, ":", port) : absl::StrCat("[", host, "]:", port);
}

absl::StatusOr<UnsharedFd> ConnectTcp(absl::string_view address, std::int64_t end_ns) {
  auto parts = SplitAddress(address);
  if (!parts.ok()) return parts.status();
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* list = nullptr;
  if (const int error = ::getaddrinfo(parts->first.c_str(), parts->second.c_str(), &hints, &list); error != 0) {
    // An unknown host may be known soon: names of pods and of new machines appear late.
    return absl::UnavailableError(absl::StrCat("host '", parts->first, "': ", ::gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(list, ::freeaddrinfo);
  // An address that does not answer leaves the others their share of the time.
  int addresses = 0;
  for (const addrinfo* next = list; next != nullptr; next = next->ai_next) ++addresses;
  absl::StatusOr<UnsharedFd> fd = absl::UnavailableError("no address");
  for (const addrinfo* next = list; next != nullptr && !fd.ok(); next = next->ai_next) {
    fd = ConnectOne(*next, addresses == 1 ? end_ns : std::min(end_ns, NanosIn(LeftUntil(end_ns) / addresses)));
    --addresses;
  }
  return fd;
}

absl::Status WaitToSend(int fd, std::int64_t end_ns) { return WaitFor(fd, POLLOUT, end_ns); }

absl::Status SendAll(int fd, absl::string_view bytes, std::int64_t end_ns) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN) {
      if (absl::Status status = WaitFor(fd, POLLOUT, end_ns); !status.ok()) return status;
    } else if (errno != EINTR) {
      return Unavailable("send", errno);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReceiveSome(int fd, std::size_t most, std::int64_t end_ns) {
  std::string bytes(most, '\0');
  while (true) {
    const ssize_t received = ::recv(fd, bytes.data(), bytes.size(), 0);
    if (received > 0) {
      bytes.resize(static_cast<std::size_t>(received));
      return bytes;
    }
    if (received == 0) return absl::UnavailableError("connection closed");
    if (errno == EAGAIN) {
      if (absl::Status status = WaitFor(fd, POLLIN, end_ns); !status.ok()) return status;
    } else if (errno != EINTR) {
      return Unavailable("receive", errno);
    }
  }
}

absl::StatusOr<std::string> ReceiveExactly(int fd, std::size_t bytes, std::int64_t end_ns) {
  std::string result;
  while (result.size() < bytes) {
    absl::StatusOr<std::string> more = ReceiveSome(fd, bytes - result.size(), end_ns);
    if (!more.ok()) return more.status();
    absl::StrAppend(&result, *more);
  }
  return result;
}

}  // namespace tutti
