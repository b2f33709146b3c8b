#include "transports/ucx/wires.h"

#include <linux/tcp.h>  // tcp_info of <netinet/tcp.h> has no tcpi_min_rtt
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace tutti::ucx {
namespace {

// While no message is under way, one call of Progress in so many looks for what has come.
constexpr int kCallsWithoutLook = 32;

// On short paths the ranks use Reno where the system has BBR or CUBIC, which are made for long paths. A collective
// sends a connection little at a time, and often. BBR paces a connection by what the connection carried last, and is
// late where ranks take turns with several peers: halving_doubling of 1 MiB on 4 hosts at 1 Gb/s takes 16.2 ms with
// BBR, 13.3 with the others. CUBIC takes a longer round trip for a full link and ends its slow start far too early:
// recursive_doubling of 128 KiB on 4 hosts at 1 Gb/s, 0.5 ms apart, takes 2.3 or 6.3 ms with CUBIC, from run to run,
// and always 2.3 with Reno. After a loss, CUBIC's window grows as that of Reno does where round trips are so short (RFC
// 9438, section 4.3).
void UseRenoOnShortPaths(int socket) {
  constexpr std::uint32_t kShortPathUs = 2000;
  constexpr absl::string_view kReno = "reno";
  std::array<char, 16> name = {};
  socklen_t bytes = name.size() - 1;
  tcp_info info = {};
  socklen_t info_bytes = sizeof(info);
  if (getsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name.data(), &bytes) != 0 ||
      getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &info_bytes) != 0) {
    return;
  }
  const absl::string_view system = name.data();
  // The shortest round trip counts: the first packet may have waited until the other host's link address was known.
  if ((system != "bbr" && system != "cubic") || info.tcpi_min_rtt > kShortPathUs) return;
  // Every Linux has Reno. A system that forbids the change keeps its own.
  (void)setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, kReno.data(), static_cast<socklen_t>(kReno.size()));
}

// In place of the number of a connection: the short wire.
constexpr std::size_t kShort = 0xFFFFFFFF;

std::uint64_t KeyOf(Rank peer, std::size_t connection) {
  return static_cast<std::uint64_t>(peer) << 32 | static_cast<std::uint64_t>(connection);
}

}  // namespace

absl::Status Wires::Watch(int socket, std::uint64_t key) {
  UseRenoOnShortPaths(socket);
  // Edges: an event tells of a change, so that a wire that takes no more bytes, or has none to send, is no event.
  epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data = {.u64 = key}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket, &event) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, "epoll_ctl");
}

absl::Status Wires::Watch(std::vector<WireSockets> connections, int size) {
  if (connections.empty()) return absl::OkStatus();
  if (!epoll_.valid()) {
    epoll_.Reset(epoll_create1(EPOLL_CLOEXEC));
    if (!epoll_.valid()) return absl::ErrnoToStatus(errno, "epoll_create1");
    wires_.resize(static_cast<std::size_t>(size));
    short_buffer_ = std::make_unique_for_overwrite<std::byte[]>(kShortBuffer);
  }
  for (std::vector<Rank>* const list : {&news_.ready, &news_.short_ready, &in_turn_, &short_in_turn_}) {
    list->reserve(peers_.size() + connections.size());
  }
  for (auto& [peer, sockets] : connections) {
    if (sockets.size() < 2) {
      return absl::FailedPreconditionError(
          absl::StrCat("rank ", peer,
                       " has made one connection, and must make two or more: is its version of Tutti "
                       "another one?"));
    }
    UnsharedFd short_socket = std::move(sockets.front());
    sockets.erase(sockets.begin());
    if (absl::Status status = Watch(short_socket.get(), KeyOf(peer, kShort)); !status.ok()) return status;
    for (std::size_t i = 0; i < sockets.size(); ++i) {
      if (absl::Status status = Watch(sockets[i].get(), KeyOf(peer, i)); !status.ok()) return status;
    }
    wires_[static_cast<std::size_t>(peer)] =
        std::make_unique<WiresToPeer>(peer, std::move(short_socket), std::move(sockets), Wire::WindowOf(size), news_);
    peers_.push_back(peer);
  }
  return absl::OkStatus();
}

Wires::WiresToPeer* Wires::Both(Rank peer) const {
  return wires_.empty() ? nullptr : wires_[static_cast<std::size_t>(peer)].get();
}

Wire* Wires::To(Rank peer) const {
  WiresToPeer* const both = Both(peer);
  return both == nullptr ? nullptr : &both->wire;
}

ShortWire* Wires::ShortTo(Rank peer) const {
  WiresToPeer* const both = Both(peer);
  return both == nullptr ? nullptr : &both->short_wire;
}

void Wires::ForEach(absl::FunctionRef<void(Rank, Wire&, ShortWire&)> visit) {
  for (const Rank peer : peers_) {
    WiresToPeer& both = *Both(peer);
    visit(peer, both.wire, both.short_wire);
  }
}

void Wires::Look() {
  unseen_ = 0;
  std::array<epoll_event, 64> events;
  const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    WiresToPeer* const both = Both(static_cast<Rank>(event.data.u64 >> 32));
    if (both == nullptr) continue;
    const std::size_t connection = event.data.u64 & 0xFFFFFFFF;
    const bool readable = (event.events & EPOLLIN) != 0, writable = (event.events & EPOLLOUT) != 0;
    const bool closed = (event.events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
    if (connection == kShort) {
      both->short_wire.SetReady(readable, writable, closed);
    } else if (!both->wire.broken()) {
      both->wire.SetReady(connection, readable, writable, closed);
    }
  }
}

bool Wires::Progress(bool looks, ShortReceiver& receiver) {
  if (peers_.empty()) return false;
  if (looks || ++unseen_ >= kCallsWithoutLook || news_.under_way > 0) Look();
  bool moved = false;
  // Announcements come before the payload that they announce, which would be kept until then and copied.
  short_in_turn_.swap(news_.short_ready);
  for (const Rank peer : short_in_turn_) {
    ShortWire* const wire = ShortTo(peer);
    if (wire != nullptr) moved |= wire->Progress({short_buffer_.get(), kShortBuffer}, receiver);
  }
  short_in_turn_.clear();
  in_turn_.swap(news_.ready);
  for (const Rank peer : in_turn_) {
    Wire* const wire = To(peer);
    if (wire != nullptr) moved |= wire->Progress();
  }
  in_turn_.clear();
  return moved;
}

void Wires::TakeEnded(absl::FunctionRef<void(const WireEnd&)> visit) {
  visited_.swap(news_.ended);
  for (const WireEnd& end : visited_) visit(end);
  visited_.clear();
}

void Wires::TakeBroken(absl::FunctionRef<void(Rank, Wire&)> visit) {
  for (const Rank peer : std::exchange(news_.broken, {})) {
    Wire* const wire = To(peer);
    if (wire != nullptr && !wire->is_closed()) visit(peer, *wire);
  }
}

void Wires::TakeShortEnded(absl::FunctionRef<void(Rank, ShortWire&)> visit) {
  for (const Rank peer : std::exchange(news_.short_ended, {})) {
    ShortWire* const wire = ShortTo(peer);
    if (wire != nullptr) visit(peer, *wire);
  }
}

void Wires::Close(Rank peer) {
  const auto found = std::find(peers_.begin(), peers_.end(), peer);
  if (found == peers_.end()) return;
  peers_.erase(found);
  wires_[static_cast<std::size_t>(peer)].reset();
}

void Wires::CloseAll() {
  peers_.clear();
  wires_.clear();
}

}  // namespace tutti::ucx
