#include "transports/ucx/node_link.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

namespace tutti::ucx {
namespace {

// A descriptor that becomes readable when the process at the other end of `socket` dies.
UniqueFd ProcessOf(int socket) {
  ucred peer = {};
  socklen_t bytes = sizeof(peer);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0 || peer.pid <= 0) return UniqueFd();
  return UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, peer.pid, 0)));
}

constexpr std::uint64_t kProcessBit = std::uint64_t{1} << 32;
constexpr int kMessagesAtOnce = 8;  // the most messages of one link that one call reads

}  // namespace

absl::Status NodeLinks::Watch(std::vector<NodePeer>& peers) {
  epoll_.Reset(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_.valid()) return absl::ErrnoToStatus(errno, "epoll_create1");
  for (NodePeer& peer : peers) {
    links_.push_back({peer.rank, std::move(peer.socket), UniqueFd()});
    Link& link = links_.back();
    link.process = ProcessOf(link.socket.get());
    epoll_event event = {};
    event.events = EPOLLIN;
    event.data.u64 = links_.size() - 1;
    bool added = epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, link.socket.get(), &event) == 0;
    event.data.u64 |= kProcessBit;
    added = added && (!link.process.valid() || epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, link.process.get(), &event) == 0);
    if (!added) return absl::ErrnoToStatus(errno, "epoll_ctl");
  }
  return absl::OkStatus();
}

void NodeLinks::Read(absl::FunctionRef<void(Rank, const Control*)> report) {
  if (!epoll_.valid()) return;
  std::array<epoll_event, 16> events;
  // Each link has two descriptors. epoll reports ready descriptors in turn, so that no link is left out for long.
  for (std::size_t seen = 0; seen < 2 * links_.size(); seen += events.size()) {
    const int ready = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
    if (ready <= 0) return;
    for (int i = 0; i < ready; ++i) {
      const std::uint64_t id = events[static_cast<std::size_t>(i)].data.u64;
      ReadLink(links_[id & (kProcessBit - 1)], (id & kProcessBit) != 0, report);
    }
  }
}

void NodeLinks::ReadLink(Link& link, bool process_died, absl::FunctionRef<void(Rank, const Control*)> report) {
  if (!link.socket.valid()) return;
  ControlFrame frame;
  ssize_t bytes = 1;
  for (int messages = 0; bytes > 0 && messages < kMessagesAtOnce; ++messages) {
    bytes = recv(link.socket.get(), frame.data(), frame.size(), MSG_DONTWAIT);
    if (bytes <= 0) break;
    const std::optional<Control> control = Decode(frame.data(), static_cast<std::size_t>(bytes));
    if (control.has_value() && control->from == link.rank) report(link.rank, &*control);
  }
  const bool ended = bytes == 0 || (bytes < 0 && errno != EAGAIN && errno != EINTR);
  const bool has_more = bytes > 0;
  if (!ended && (!process_died || has_more)) return;
  // Descriptors are removed from epoll by hand: closing a descriptor is not enough while a forked child holds a copy of
  // it.
  for (const int fd : {link.socket.get(), link.process.get()}) {
    if (fd >= 0) epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  }
  link.socket = UnsharedFd();
  link.process.Reset();
  report(link.rank, nullptr);
}

void NodeLinks::Tell(const Control& control, std::optional<Rank> only) {
  const ControlFrame frame = Encode(control);
  for (const Link& link : links_) {
    if (only.has_value() && link.rank != *only) continue;
    if (link.socket.valid()) (void)send(link.socket.get(), frame.data(), frame.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
}

void NodeLinks::Close() {
  for (const Link& link : links_) shutdown(link.socket.get(), SHUT_RDWR);
  *this = NodeLinks();
}

}  // namespace tutti::ucx
