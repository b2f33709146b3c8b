#include "transports/ucx/node_rendezvous.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/descriptors.h"

namespace tutti::ucx {
namespace {

constexpr std::uint32_t kMagic = 0x334d5454;  // "TTM3"
constexpr std::size_t kMaxStrangers = 64;     // the most connections whose other end has not said who it is
constexpr absl::Duration kProbe = absl::Milliseconds(250);  // the time between two looks whether the awaited ranks live

// The message in which each side introduces itself; it carries the descriptors of the sender's region and of the event
// on which the sender sleeps.
struct Introduction {
  std::uint32_t magic;
  Rank rank;
  Nonce nonce;             // the nonce of the receiver, which proves that the sender knows the receiver's address
  std::uint64_t nonce_at;  // where the sender has its own nonce in its memory: see ProcessMemory::AtOtherEnd
};

absl::Status Errno(absl::string_view what) { return absl::ErrnoToStatus(errno, what); }

// Fills `address` with the abstract name `name` and returns its length.
socklen_t Fill(const std::string& name, sockaddr_un* address) {
  *address = {};
  address->sun_family = AF_UNIX;
  std::memcpy(address->sun_path + 1, name.data(), std::min(name.size(), sizeof(address->sun_path) - 1));
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

std::optional<uid_t> UserOf(int socket) {
  ucred peer = {};
  socklen_t bytes = sizeof(peer);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0) return std::nullopt;
  return peer.uid;
}

using Descriptors = std::array<int, 2>;

bool SendIntroduction(int socket, const Introduction& introduction, const Descriptors& descriptors) {
  iovec data = {const_cast<Introduction*>(&introduction), sizeof(introduction)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(Descriptors))] = {};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(Descriptors));
  std::memcpy(CMSG_DATA(header), descriptors.data(), sizeof(Descriptors));
  return sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(sizeof(introduction));
}

struct Introduced {
  Rank rank;
  std::uint64_t nonce_at;
  UniqueFd region;
  UniqueFd wake;
};

// Receives an introduction; nullopt unless it is whole, has the right nonce and carries exactly two descriptors.
// ResourceExhausted where this process has no room for the descriptors.
absl::StatusOr<std::optional<Introduced>> ReceiveIntroduction(int socket, const Nonce& nonce, Rank own) {
  Introduction introduction;
  iovec data = {&introduction, sizeof(introduction)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(Descriptors))] = {};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t bytes = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (bytes < 0) return std::nullopt;
  std::array<UniqueFd, 2> received;
  std::size_t number = 0;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    // There is room for two descriptors only; the kernel closes any others.
    const std::size_t held = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < held && number < received.size(); ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(fd));
      received[number++].Reset(fd);
    }
  }
  const bool from_peer = bytes == static_cast<ssize_t>(sizeof(introduction)) && (message.msg_flags & MSG_TRUNC) == 0 &&
                         introduction.magic == kMagic && Equal(introduction.nonce, nonce);
  if (!from_peer) return std::nullopt;
  const bool cut = (message.msg_flags & MSG_CTRUNC) != 0;
  if (cut && number < received.size()) {
    // The kernel leaves descriptors out where this process may have no more, and does not say that this is why.
    const UniqueFd one_more(fcntl(socket, F_DUPFD_CLOEXEC, 0));
    const absl::Status shortage =
        one_more.valid()
            ? absl::OkStatus()
            : CheckShortage(errno, absl::StrCat("rank ", own, " cannot take the memory of rank ", introduction.rank));
    if (!shortage.ok()) return shortage;
  }
  if (cut || number < received.size()) return std::nullopt;
  return Introduced{introduction.rank, introduction.nonce_at, std::move(received[0]), std::move(received[1])};
}

// One run of NodeRendezvous::Meet.
class Meeting {
 public:
  Meeting(int listener, const Nonce& nonce, Rank rank, const SharedRegion& region, const UniqueFd& wake,
          absl::Span<const NodeMember> members, absl::FunctionRef<absl::Status()> watch)
      : listener_(listener),
        nonce_(nonce),
        rank_(rank),
        region_(region),
        wake_(wake),
        members_(members),
        watch_(watch) {}

  absl::StatusOr<std::vector<NodePeer>> Run(std::int64_t end_ns) {
    for (const NodeMember& member : members_) {
      if (member.rank > rank_) continue;
      if (absl::Status status = Call(member, end_ns); !status.ok()) return status;
    }
    while (met_.size() < members_.size()) {
      if (absl::Status status = Await(end_ns); !status.ok()) return status;
      if (absl::Status status = watch_(); !status.ok()) return status;
    }
    return std::move(met_);
  }

 private:
  const NodeMember* Missing(Rank rank) const {
    const auto met = [&](Rank r) {
      return std::any_of(met_.begin(), met_.end(), [r](const NodePeer& peer) { return peer.rank == r; });
    };
    for (const NodeMember& member : members_) {
      if (member.rank == rank && !met(rank)) return &member;
    }
    return nullptr;
  }

  absl::Status DeadlineExceeded() const {
    const auto missing =
        std::find_if(members_.begin(), members_.end(), [&](const NodeMember& m) { return Missing(m.rank) != nullptr; });
    return absl::DeadlineExceededError(
        absl::StrCat("rank ", missing->rank, " on this node did not connect to rank ", rank_, " in time"));
  }

  absl::Status ClosedError(Rank rank) const {
    return absl::UnavailableError(absl::StrCat("rank ", rank, " on this node closed its connection to rank ", rank_));
  }

  // Why there is no socket for a connection to `rank`, from errno.
  absl::Status CannotConnect(Rank rank) const {
    absl::Status shortage =
        CheckShortage(errno, absl::StrCat("rank ", rank_, " cannot make a connection to rank ", rank, " on its node"));
    return shortage.ok() ? Errno("socket") : shortage;
  }

  // Connects to a member of lower rank and introduces this rank; all answers are awaited together later.
  absl::Status Call(const NodeMember& member, std::int64_t end_ns) {
    UnsharedFd socket(UniqueFd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)));
    if (!socket.valid()) return CannotConnect(member.rank);
    sockaddr_un address;
    const socklen_t bytes = Fill(member.address->socket, &address);
    while (connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), bytes) != 0) {
      if (errno != EAGAIN && errno != EINTR) {
        return absl::UnavailableError(
            absl::StrCat("rank ", member.rank, " says that it is on this node ('", member.address->node,
                         "') but cannot be connected to (", std::strerror(errno),
                         "): it is dead, or in another network namespace, and then needs another node name"));
      }
      // The member's queue of connections is full; the kernel gives no descriptor to wait on for that.
      if (MonotonicNanos() > end_ns) return DeadlineExceeded();
      if (absl::Status status = watch_(); !status.ok()) return status;
      poll(nullptr, 0, 1);
    }
    const std::optional<uid_t> user = UserOf(socket.get());
    if (user != geteuid()) {
      return absl::PermissionDeniedError(
          absl::StrCat("rank ", member.rank, " runs as another user than rank ", rank_,
                       ", so memory cannot be shared: give them other node names (TUTTI_NODE, UcxOptions.node)"));
    }
    if (!Introduce(socket.get(), *member.address)) return ClosedError(member.rank);
    called_.emplace_back(member.rank, std::move(socket));
    return absl::OkStatus();
  }

  absl::Status Await(std::int64_t end_ns) {
    std::vector<pollfd> fds = {{listener_, POLLIN, 0}};
    for (const auto& [rank, socket] : called_) fds.push_back({socket.get(), POLLIN, 0});
    for (const UnsharedFd& socket : strangers_) fds.push_back({socket.get(), POLLIN, 0});
    const timespec timeout = absl::ToTimespec(std::clamp(LeftUntil(end_ns), absl::ZeroDuration(), kProbe));
    const int ready = ppoll(fds.data(), fds.size(), &timeout, nullptr);
    if (ready < 0 && errno != EINTR) return Errno("poll");
    if (MonotonicNanos() >= end_ns) return DeadlineExceeded();  // the deadline holds also while strangers keep coming
    if (ready <= 0) return CheckAwaited();

    const std::size_t num_called = called_.size();
    for (std::size_t i = fds.size(); i-- > 1 + num_called;) {
      if (fds[i].revents == 0) continue;
      if (absl::Status status = Hear(i - 1 - num_called); !status.ok()) return status;
    }
    for (std::size_t i = 1 + num_called; i-- > 1;) {
      if (fds[i].revents == 0) continue;
      if (absl::Status status = TakeAnswer(i - 1); !status.ok()) return status;
    }
    return fds[0].revents != 0 ? Accept() : absl::OkStatus();
  }

  // Finds a rank that has died before meeting. A higher rank that dies before it connects closes nothing that this rank
  // would see, but its own socket is gone then: a living rank keeps its socket open until it has met this rank.
  absl::Status CheckAwaited() const {
    for (const NodeMember& member : members_) {
      if (member.rank < rank_ || Missing(member.rank) == nullptr) continue;
      const UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      if (!socket.valid()) return CannotConnect(member.rank);
      sockaddr_un address;
      const socklen_t bytes = Fill(member.address->socket, &address);
      if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), bytes) == 0) continue;
      if (errno != ECONNREFUSED) continue;  // the socket is busy
      return absl::UnavailableError(
          absl::StrCat("rank ", member.rank, " on this node has died or given up before it connected to rank ", rank_));
    }
    return absl::OkStatus();
  }

  absl::Status Accept() {
    UnsharedFd socket(UniqueFd(accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)));
    if (!socket.valid()) {
      return CheckShortage(errno, absl::StrCat("rank ", rank_, " cannot accept the connections of ranks on its node"));
    }
    if (UserOf(socket.get()) != geteuid()) return absl::OkStatus();
    if (strangers_.size() == kMaxStrangers + members_.size()) strangers_.erase(strangers_.begin());
    strangers_.push_back(std::move(socket));
    return absl::OkStatus();
  }

  absl::StatusOr<Mapping> MapRegionOf(const NodeMember& member, const UniqueFd& region) const {
    absl::StatusOr<Mapping> mapping = MapSharedRegion(region.get(), member.address->region_bytes);
    if (mapping.ok()) return mapping;
    std::int64_t all = region_.mapping.bytes();
    for (const NodeMember& each : members_) all += each.address->region_bytes;
    return absl::Status(
        mapping.status().code(),
        absl::StrCat("rank ", rank_, " cannot map the memory of rank ", member.rank, ": ", mapping.status().message(),
                     "; each of the ", members_.size() + 1, " ranks on this node needs ", all,
                     " bytes of address space for the memory of all"));
  }

  // Introduces this rank to the peer at the other end of `socket`.
  bool Introduce(int socket, const PeerAddress& peer) const {
    const Introduction introduction = {kMagic, rank_, peer.nonce, reinterpret_cast<std::uintptr_t>(&nonce_)};
    return SendIntroduction(socket, introduction, {region_.fd.get(), wake_.get()});
  }

  void Keep(const NodeMember& member, UnsharedFd socket, Mapping region, Introduced introduced) {
    const ProcessMemory memory = ProcessMemory::AtOtherEnd(socket.get(), introduced.nonce_at, member.address->nonce);
    met_.push_back({member.rank, std::move(socket), std::move(region), std::move(introduced.wake), memory});
  }

  // Reads the first message of a connection: a higher rank introduces itself and gets this rank's introduction in
  // return; any other connection is closed. An error means that this rank itself cannot go on.
  absl::Status Hear(std::size_t index) {
    UnsharedFd socket = std::move(strangers_[index]);
    strangers_.erase(strangers_.begin() + static_cast<std::ptrdiff_t>(index));
    absl::StatusOr<std::optional<Introduced>> received = ReceiveIntroduction(socket.get(), nonce_, rank_);
    if (!received.ok()) return received.status();
    std::optional<Introduced>& introduced = *received;
    if (!introduced.has_value() || introduced->rank <= rank_) return absl::OkStatus();
    const NodeMember* member = Missing(introduced->rank);
    if (member == nullptr) return absl::OkStatus();
    absl::StatusOr<Mapping> region = MapRegionOf(*member, introduced->region);
    if (!region.ok()) return region.status();
    if (!Introduce(socket.get(), *member->address)) return absl::OkStatus();
    Keep(*member, std::move(socket), *std::move(region), *std::move(introduced));
    return absl::OkStatus();
  }

  absl::Status TakeAnswer(std::size_t index) {
    const Rank rank = called_[index].first;
    UnsharedFd socket = std::move(called_[index].second);
    called_.erase(called_.begin() + static_cast<std::ptrdiff_t>(index));
    absl::StatusOr<std::optional<Introduced>> received = ReceiveIntroduction(socket.get(), nonce_, rank_);
    if (!received.ok()) return received.status();
    std::optional<Introduced>& introduced = *received;
    if (!introduced.has_value() || introduced->rank != rank) return ClosedError(rank);
    const NodeMember& member = *Missing(rank);
    absl::StatusOr<Mapping> region = MapRegionOf(member, introduced->region);
    if (!region.ok()) return region.status();
    Keep(member, std::move(socket), *std::move(region), *std::move(introduced));
    return absl::OkStatus();
  }

  const int listener_;
  const Nonce& nonce_;
  const Rank rank_;
  const SharedRegion& region_;
  const UniqueFd& wake_;
  const absl::Span<const NodeMember> members_;
  const absl::FunctionRef<absl::Status()> watch_;
  std::vector<std::pair<Rank, UnsharedFd>> called_;
  std::vector<UnsharedFd> strangers_;
  std::vector<NodePeer> met_;
};

}  // namespace

void WakeSleeper(const UniqueFd& wake) {
  const std::uint64_t one = 1;
  (void)!write(wake.get(), &one, sizeof(one));  // fails only when the counter is full, which wakes as well
}

absl::StatusOr<NodeRendezvous> NodeRendezvous::Open() {
  NodeRendezvous rendezvous;
  rendezvous.nonce_ = NewNonce();
  const Nonce random = NewNonce();
  rendezvous.name_ = absl::StrCat("tutti-", absl::BytesToHexString(absl::string_view(random.data(), 16)));
  rendezvous.listener_ = UnsharedFd(UniqueFd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)));
  if (!rendezvous.listener_.valid()) return Errno("socket");
  sockaddr_un address;
  const socklen_t bytes = Fill(rendezvous.name_, &address);
  if (bind(rendezvous.listener_.get(), reinterpret_cast<const sockaddr*>(&address), bytes) != 0) return Errno("bind");
  if (listen(rendezvous.listener_.get(), SOMAXCONN) != 0) return Errno("listen");
  return rendezvous;
}

absl::StatusOr<std::vector<NodePeer>> NodeRendezvous::Meet(Rank rank, const SharedRegion& region, const UniqueFd& wake,
                                                           absl::Span<const NodeMember> members, std::int64_t end_ns,
                                                           absl::FunctionRef<absl::Status()> watch) {
  absl::StatusOr<std::vector<NodePeer>> met =
      Meeting(listener_.get(), nonce_, rank, region, wake, members, watch).Run(end_ns);
  listener_ = UnsharedFd();
  return met;
}

}  // namespace tutti::ucx
