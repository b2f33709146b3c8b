#include "transports/ucx/wires.h"

#include <linux/tcp.h>  // tcp_info of <netinet/tcp.h> has no tcpi_min_rtt
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

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

std::uint64_t KeyOf(Rank peer, std::size_t connection) {
  return static_cast<std::uint64_t>(peer) << 32 | static_cast<std::uint64_t>(connection);
}

}  // namespace

absl::Status Wires::Watch(std::vector<WireSockets> connections, int size) {
  epoll_.Reset(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_.valid()) return absl::ErrnoToStatus(errno, "epoll_create1");
  wires_.resize(static_cast<std::size_t>(size));
  for (std::vector<Rank>* const list : {&news_.ready, &in_turn_}) list->reserve(connections.size());
  for (auto& [peer, sockets] : connections) {
    for (std::size_t i = 0; i < sockets.size(); ++i) {
      UseRenoOnShortPaths(sockets[i].get());
      // Edges: an event tells of a change, so that a wire that takes no more bytes, or has none to send, is no event.
      epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data = {.u64 = KeyOf(peer, i)}};
      if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, sockets[i].get(), &event) != 0) {
        return absl::ErrnoToStatus(errno, "epoll_ctl");
      }
    }
    wires_[static_cast<std::size_t>(peer)] =
        std::make_unique<Wire>(peer, std::move(sockets), Wire::WindowOf(size), news_);
    peers_.push_back(peer);
  }
  return absl::OkStatus();
}

Wire* Wires::To(Rank peer) const { return wires_.empty() ? nullptr : wires_[static_cast<std::size_t>(peer)].get(); }

void Wires::ForEach(absl::FunctionRef<void(Rank, Wire&)> visit) {
  for (const Rank peer : peers_) visit(peer, *To(peer));
}

void Wires::Look() {
  unseen_ = 0;
  std::array<epoll_event, 64> events;
  const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    Wire* const wire = To(static_cast<Rank>(event.data.u64 >> 32));
    if (wire == nullptr || wire->broken()) continue;
    wire->SetReady(event.data.u64 & 0xFFFFFFFF, (event.events & EPOLLIN) != 0, (event.events & EPOLLOUT) != 0,
                   (event.events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0);
  }
}

bool Wires::Progress(bool looks) {
  if (peers_.empty()) return false;
  if (looks || ++unseen_ >= kCallsWithoutLook || news_.under_way > 0) Look();
  in_turn_.swap(news_.ready);
  bool moved = false;
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
