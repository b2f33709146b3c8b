#include "transports/ucx/wire_meeting.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/clock.h"
#include "base/descriptors.h"
#include "base/keep_alive.h"
#include "transports/errors.h"
#include "transports/ucx/network_hint.h"

namespace tutti::ucx {
namespace {

// The most connections, beyond those that are expected, whose other end has not said who it is.
constexpr std::size_t kMaxStrangers = 64;
// The answer of a rank that knows who has connected.
constexpr char kAnswer = 'A';
// The attempts to make one connection, and the pause before the next one, after the other end has closed it unanswered.
constexpr int kMaxAttempts = 50;
constexpr absl::Duration kPause = absl::Milliseconds(50);

struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t bytes = 0;

  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

SocketAddress Copy(const void* address, std::size_t bytes) {
  SocketAddress copy;
  copy.bytes = static_cast<socklen_t>(std::min(bytes, sizeof(copy.storage)));
  std::memcpy(&copy.storage, address, copy.bytes);
  return copy;
}

// The first address of `interface`, IPv4 before IPv6, with no port.
std::optional<SocketAddress> AddressOf(const std::string& interface) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return std::nullopt;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owned(list, freeifaddrs);
  for (const auto& [family, bytes] :
       {std::pair(AF_INET, sizeof(sockaddr_in)), std::pair(AF_INET6, sizeof(sockaddr_in6))}) {
    for (const ifaddrs* next = list; next != nullptr; next = next->ifa_next) {
      if (next->ifa_addr == nullptr || next->ifa_addr->sa_family != family || interface != next->ifa_name) continue;
      return Copy(next->ifa_addr, bytes);
    }
  }
  return std::nullopt;
}

// An address as its owner has sent it, for people to read: "10.0.0.2 port 41217".
std::string Text(const std::string& address) {
  SocketAddress copy = Copy(address.data(), address.size());
  std::array<char, NI_MAXHOST> host;
  std::array<char, NI_MAXSERV> port;
  if (getnameinfo(copy.get(), copy.bytes, host.data(), host.size(), port.data(), port.size(),
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "an address that is none";
  }
  return absl::StrCat(host.data(), " port ", port.data());
}

// Sends what is written at once, and keeps the wires to peers with which this rank exchanges nothing for hours.
void Prepare(int socket) {
  const int on = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  KeepAlive(socket);
}

UnsharedFd NewSocket(int family) {
  UnsharedFd socket(UniqueFd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)));
  if (socket.valid()) Prepare(socket.get());
  return socket;
}

}  // namespace

absl::StatusOr<WireMeeting> WireMeeting::Open(const std::string& interface) {
  WireMeeting meeting;
  std::optional<SocketAddress> address = AddressOf(interface);
  if (!address) return meeting;
  meeting.listener_ = NewSocket(address->storage.ss_family);
  if (!meeting.listener_.valid()) return absl::ErrnoToStatus(errno, "socket");
  if (bind(meeting.listener_.get(), address->get(), address->bytes) != 0 ||
      listen(meeting.listener_.get(), SOMAXCONN) != 0 ||
      getsockname(meeting.listener_.get(), address->get(), &address->bytes) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("listening on interface '", interface, "'"));
  }
  if (address->storage.ss_family == AF_INET6) {  // the index of an interface means nothing on another machine
    reinterpret_cast<sockaddr_in6*>(address->get())->sin6_scope_id = 0;
  }
  meeting.address_.assign(reinterpret_cast<const char*>(address->get()), address->bytes);
  return meeting;
}

absl::Status WireMeeting::Await(int socket, std::uint32_t events) {
  epoll_event event = {.events = events, .data = {}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket, &event) != 0) return absl::ErrnoToStatus(errno, "epoll_ctl");
  return absl::OkStatus();
}

absl::Status WireMeeting::Begin(Rank rank, const Nonce& nonce, std::vector<WireMember> members, int connections) {
  rank_ = rank;
  nonce_ = nonce;
  connections_ = static_cast<std::size_t>(connections);
  members_ = std::move(members);
  missing_ = members_.size();
  is_met_.assign(members_.size(), false);
  for (const WireMember& member : members_) sockets_.push_back({member.rank, {}});
  epoll_.Reset(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_.valid()) return absl::ErrnoToStatus(errno, "epoll_create1");
  if (members_.empty()) return absl::OkStatus();
  if (absl::Status status = Await(listener_.get(), EPOLLIN); !status.ok()) return status;
  for (std::size_t member = 0; member < members_.size(); ++member) {
    if (members_[member].rank > rank_) {
      calls_.push_back({.member = member, .index = std::nullopt, .socket = {}});
      continue;
    }
    sockets_[member].sockets.resize(connections_);
    for (std::uint32_t i = 0; i < connections_; ++i) calls_.push_back({.member = member, .index = i, .socket = {}});
  }
  for (Call& call : calls_) {
    if (absl::Status status = Dial(call); !status.ok()) return status;
  }
  return absl::OkStatus();
}

bool WireMeeting::reached() const {
  return std::all_of(calls_.begin(), calls_.end(), [](const Call& call) { return call.introduced; });
}

std::string WireMeeting::CannotReach(std::size_t member) const {
  return absl::StrCat("rank ", members_[member].rank, " cannot be reached from rank ", rank_, " over TCP at ",
                      Text(members_[member].address), ": ");
}

absl::Status WireMeeting::Unreachable(std::size_t member, int error) const {
  absl::Status shortage =
      CheckShortage(error, absl::StrCat("rank ", rank_, " cannot make a connection to rank ", members_[member].rank));
  if (!shortage.ok()) return shortage;
  return absl::UnavailableError(absl::StrCat(CannotReach(member), std::strerror(error), kNetworkHint));
}

absl::Status WireMeeting::Unanswered() const {
  const auto call = std::find_if(calls_.begin(), calls_.end(), [](const Call& one) { return !one.introduced; });
  return absl::DeadlineExceededError(absl::StrCat(CannotReach(call->member), "no answer in time", kNetworkHint));
}

Rank WireMeeting::missing() const {
  const auto found = std::find(is_met_.begin(), is_met_.end(), false);
  return found == is_met_.end() ? rank_ : members_[static_cast<std::size_t>(found - is_met_.begin())].rank;
}

absl::Status WireMeeting::Unmet() const {
  const absl::string_view did_not = missing() > rank_ ? " did not connect to rank " : " did not answer rank ";
  return absl::DeadlineExceededError(absl::StrCat("rank ", missing(), did_not, rank_, " in time"));
}

absl::Status WireMeeting::Dial(Call& call) {
  const std::size_t member = call.member;
  SocketAddress address = Copy(members_[member].address.data(), members_[member].address.size());
  if (address.storage.ss_family == AF_INET6) {
    auto* const v6 = reinterpret_cast<sockaddr_in6*>(address.get());
    // A link-local address is reached through this rank's own interface.
    if (IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr)) {
      sockaddr_storage bound = {};
      socklen_t bytes = sizeof(bound);
      if (getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&bound), &bytes) == 0 &&
          bound.ss_family == AF_INET6) {
        v6->sin6_scope_id = reinterpret_cast<const sockaddr_in6*>(&bound)->sin6_scope_id;
      }
    }
  }
  UnsharedFd socket = NewSocket(address.storage.ss_family);
  if (!socket.valid()) return Unreachable(member, errno);
  if (connect(socket.get(), address.get(), address.bytes) != 0 && errno != EINPROGRESS) {
    return Unreachable(member, errno);
  }
  if (absl::Status status = Await(socket.get(), EPOLLOUT); !status.ok()) return status;
  call.socket = std::move(socket);
  return absl::OkStatus();
}

absl::StatusOr<bool> WireMeeting::GoOn(Call& call) {
  if (call.introduced) return HearAnswer(call);
  if (call.socket.valid()) return Introduce(call);
  if (MonotonicNanos() < call.next_ns) return false;
  if (absl::Status status = Dial(call); !status.ok()) return status;
  return false;
}

absl::StatusOr<bool> WireMeeting::Introduce(Call& call) {
  pollfd ready = {call.socket.get(), POLLOUT, 0};
  if (poll(&ready, 1, 0) <= 0) return false;
  int error = 0;
  socklen_t bytes = sizeof(error);
  if (getsockopt(call.socket.get(), SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) error = errno;
  if (error == ECONNREFUSED && call.attempts > 1) {
    return Died(members_[call.member].rank, "it closed its connection, and listens no more");
  }
  if (error == ECONNRESET && call.index) {
    return Repeat(call);
  }
  if (error != 0) return Unreachable(call.member, error);
  if (!call.index) return true;
  const WireMember& member = members_[call.member];
  std::vector<UnsharedFd>& sockets = sockets_[call.member].sockets;
  Introduction introduction;
  introduction.rank = rank_;
  introduction.index = *call.index;
  introduction.count = static_cast<std::uint32_t>(sockets.size());
  introduction.nonce = member.nonce;
  // The buffer of a connection that is just up has room for the introduction.
  if (send(call.socket.get(), &introduction, sizeof(introduction), MSG_NOSIGNAL | MSG_DONTWAIT) !=
      static_cast<ssize_t>(sizeof(introduction))) {
    if (errno != EPIPE && errno != ECONNRESET) return Unreachable(call.member, errno);
    return Repeat(call);
  }
  epoll_event answered = {.events = EPOLLIN, .data = {}};
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, call.socket.get(), &answered);
  call.introduced = true;
  return false;
}

absl::StatusOr<bool> WireMeeting::HearAnswer(Call& call) {
  char answer = 0;
  const ssize_t got = recv(call.socket.get(), &answer, sizeof(answer), MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (got <= 0 || answer != kAnswer) {
    return Repeat(call);
  }
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, call.socket.get(), nullptr);
  sockets_[call.member].sockets[*call.index] = std::move(call.socket);
  NoteIfMet(call.member);
  return true;
}

absl::StatusOr<bool> WireMeeting::Repeat(Call& call) {
  if (call.attempts == kMaxAttempts) {
    return absl::UnavailableError(absl::StrCat(
        CannotReach(call.member), "it closed ", kMaxAttempts,
        " connections before it had answered: strangers fill its port, another process has its address, or the network "
        "breaks new connections"));
  }
  ++call.attempts;
  call.introduced = false;
  call.socket = {};
  call.next_ns = NanosIn(kPause);
  return false;
}

absl::Status WireMeeting::Accept() {
  for (std::size_t i = 0; i < kMaxStrangers; ++i) {
    UnsharedFd socket(UniqueFd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)));
    if (!socket.valid()) {
      return CheckShortage(errno, absl::StrCat("rank ", rank_, " cannot accept the connections of other ranks"));
    }
    Prepare(socket.get());
    // More than this rank needs for its wires, by few: other parts of it need descriptors, too.
    if (strangers_.size() >= kMaxStrangers + missing_ * connections_) strangers_.erase(strangers_.begin());
    if (absl::Status status = Await(socket.get(), EPOLLIN); !status.ok()) return status;
    strangers_.push_back({std::move(socket), {}, 0});
  }
  return absl::OkStatus();
}

bool WireMeeting::Hear(Stranger& stranger) {
  const ssize_t got = recv(stranger.socket.get(), stranger.text.data() + stranger.read,
                           stranger.text.size() - stranger.read, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (got > 0) stranger.read += static_cast<std::size_t>(got);
  if (got > 0 && stranger.read < stranger.text.size()) return false;
  if (got <= 0) return true;  // gone, and closed by the caller
  Introduction introduction;
  std::memcpy(&introduction, stranger.text.data(), sizeof(introduction));
  Admit(std::move(stranger.socket), introduction);
  return true;
}

void WireMeeting::Admit(UnsharedFd socket, const Introduction& introduction) {
  if (introduction.magic != Introduction().magic || !Equal(introduction.nonce, nonce_) || introduction.rank <= rank_) {
    return;
  }
  const auto member =
      std::find_if(members_.begin(), members_.end(), [&](const WireMember& m) { return m.rank == introduction.rank; });
  if (member == members_.end() || introduction.count > kMaxWireConnections + 1) return;
  const auto place = static_cast<std::size_t>(member - members_.begin());
  if (is_met_[place]) return;
  std::vector<UnsharedFd>& sockets = sockets_[place].sockets;
  if (sockets.empty()) sockets.resize(introduction.count);
  if (introduction.count != sockets.size() || introduction.index >= introduction.count ||
      sockets[introduction.index].valid()) {
    return;
  }
  // The buffer of a connection over which nothing was sent has room for the answer.
  if (send(socket.get(), &kAnswer, sizeof(kAnswer), MSG_NOSIGNAL | MSG_DONTWAIT) != sizeof(kAnswer)) return;
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, socket.get(), nullptr);
  sockets[introduction.index] = std::move(socket);
  NoteIfMet(place);
}

void WireMeeting::NoteIfMet(std::size_t member) {
  const std::vector<UnsharedFd>& sockets = sockets_[member].sockets;
  if (!std::all_of(sockets.begin(), sockets.end(), [](const UnsharedFd& socket) { return socket.valid(); })) return;
  is_met_[member] = true;
  untaken_.push_back(member);
  --missing_;
}

absl::StatusOr<bool> WireMeeting::Advance() {
  absl::Status failed;
  std::erase_if(calls_, [&](Call& call) {
    const absl::StatusOr<bool> done = GoOn(call);
    if (!done.ok() && failed.ok()) failed = done.status();
    return !done.ok() || *done;
  });
  if (!failed.ok()) return failed;
  // Also the connections of those that only try whether they reach this rank: they wait for an answer.
  if (absl::Status status = Accept(); !status.ok()) return status;
  std::erase_if(strangers_, [&](Stranger& stranger) { return Hear(stranger); });
  return missing_ == 0;
}

std::vector<WireSockets> WireMeeting::TakeMet() {
  std::vector<WireSockets> taken;
  for (const std::size_t member : std::exchange(untaken_, {})) {
    taken.push_back(std::move(sockets_[member]));
  }
  return taken;
}

}  // namespace tutti::ucx
