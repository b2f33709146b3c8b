#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "tests/harness/descriptor_limit.h"
#include "tests/transports/sockets_at.h"
#include "transports/ucx/node_rendezvous.h"

namespace tutti::ucx {
namespace {

constexpr std::int64_t kBytes = 4096;
constexpr std::int64_t kLarge = std::int64_t{1} << 30;

UniqueFd ConnectTo(const std::string& name) {
  UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  EXPECT_EQ(connect(fd.get(), reinterpret_cast<const sockaddr*>(&address),
                    static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())),
            0);
  return fd;
}

UniqueFd Event() { return UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)); }

PeerAddress AddressOf(const NodeRendezvous& rendezvous, std::int64_t region_bytes = kBytes) {
  PeerAddress address;
  address.node = "here";
  address.socket = rendezvous.socket_name();
  address.nonce = rendezvous.nonce();
  address.region_bytes = region_bytes;
  return address;
}

TEST(UcxNodeRendezvous, MeetsItsPeersAmongStrangers) {
  NodeRendezvous low = NodeRendezvous::Open().value();
  NodeRendezvous high = NodeRendezvous::Open().value();
  const SharedRegion low_region = CreateSharedRegion(kBytes).value();
  const SharedRegion high_region = CreateSharedRegion(kBytes).value();
  const UniqueFd low_wake = Event(), high_wake = Event();
  const PeerAddress low_address = AddressOf(low), high_address = AddressOf(high);

  const UniqueFd silent = ConnectTo(low.socket_name());
  const UniqueFd babbling = ConnectTo(low.socket_name());
  const std::string garbage(10'000, 'g');
  EXPECT_GT(send(babbling.get(), garbage.data(), garbage.size(), 0), 0);
  const UniqueFd too_short = ConnectTo(low.socket_name());
  EXPECT_EQ(send(too_short.get(), "x", 1, 0), 1);

  const std::int64_t end_ns = NanosIn(absl::Minutes(1));
  std::thread other([&] {
    const NodeMember member = {0, &low_address};
    const auto met = high.Meet(1, high_region, high_wake, {&member, 1}, end_ns);
    ASSERT_TRUE(met.ok()) << met.status();
    ASSERT_EQ(met->size(), 1u);
    (*met)[0].region.base()[5] = std::byte{42};
    WakeSleeper((*met)[0].wake);
  });
  const NodeMember member = {1, &high_address};
  const auto met = low.Meet(0, low_region, low_wake, {&member, 1}, end_ns);
  other.join();
  ASSERT_TRUE(met.ok()) << met.status();
  ASSERT_EQ(met->size(), 1u);
  EXPECT_EQ((*met)[0].rank, 1);
  EXPECT_EQ(low_region.mapping.base()[5], std::byte{42});
  eventfd_t wakes = 0;
  EXPECT_EQ(eventfd_read(low_wake.get(), &wakes), 0);
  EXPECT_EQ(wakes, 1u);
  EXPECT_NE(eventfd_read(high_wake.get(), &wakes), 0) << "nobody has woken the higher rank";
}

// A child would keep open what its parent had connected when the child was forked.
TEST(UcxNodeRendezvous, NoChildKeepsASocket) {
  NodeRendezvous low = NodeRendezvous::Open().value(), high = NodeRendezvous::Open().value();
  const SharedRegion region = CreateSharedRegion(kBytes).value();
  const UniqueFd wake = Event();
  const PeerAddress low_address = AddressOf(low), high_address = AddressOf(high);
  const std::string at_low = AbstractAddress(low.socket_name()), at_high = AbstractAddress(high.socket_name());
  const std::int64_t end_ns = NanosIn(absl::Minutes(1));
  std::thread other([&] {
    const NodeMember member = {0, &low_address};
    EXPECT_TRUE(high.Meet(1, region, wake, {&member, 1}, end_ns).ok());
  });
  const auto sockets = [&] {
    return SocketsAt(at_low).size() + SocketsAt(at_high).size() + SocketsConnectedTo(at_low).size();
  };
  while (sockets() < 3) absl::SleepFor(absl::Milliseconds(1));  // two listeners, and the higher rank's connection
  EXPECT_EQ(SocketsKeptByAChild(sockets), 0);
  const NodeMember member = {1, &high_address};
  EXPECT_TRUE(low.Meet(0, region, wake, {&member, 1}, end_ns).ok());
  other.join();
}

TEST(UcxNodeRendezvous, AWrongNonceIsRefused) {
  NodeRendezvous low = NodeRendezvous::Open().value();
  NodeRendezvous high = NodeRendezvous::Open().value();
  const SharedRegion region = CreateSharedRegion(kBytes).value();
  PeerAddress forged = AddressOf(low);
  forged.nonce = NewNonce();
  const PeerAddress high_address = AddressOf(high);
  std::thread other([&] {
    const NodeMember member = {0, &forged};
    const absl::Status refused = high.Meet(1, region, Event(), {&member, 1}, NanosIn(absl::Minutes(1))).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable) << refused;
    EXPECT_EQ(refused.message(), "rank 0 on this node closed its connection to rank 1");
  });
  const NodeMember member = {1, &high_address};
  const absl::Status missing = low.Meet(0, region, Event(), {&member, 1}, NanosIn(absl::Milliseconds(200))).status();
  other.join();
  EXPECT_EQ(missing.code(), absl::StatusCode::kDeadlineExceeded) << missing;
  EXPECT_EQ(missing.message(), "rank 1 on this node did not connect to rank 0 in time");
}

TEST(UcxNodeRendezvous, ADeadPeerIsNamed) {
  PeerAddress gone;
  {
    const NodeRendezvous dead = NodeRendezvous::Open().value();
    gone = AddressOf(dead);
  }
  NodeRendezvous mine = NodeRendezvous::Open().value();
  const SharedRegion region = CreateSharedRegion(kBytes).value();
  const NodeMember member = {0, &gone};
  const absl::Status status = mine.Meet(1, region, Event(), {&member, 1}, NanosIn(absl::Minutes(1))).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(status.message().substr(0, 6), "rank 0");
}

// A rank waits for the connection of a higher rank, and does not connect to it.
TEST(UcxNodeRendezvous, APeerThatDiesBeforeItConnectsIsNamedLongBeforeTheDeadline) {
  PeerAddress gone;
  {
    const NodeRendezvous dead = NodeRendezvous::Open().value();
    gone = AddressOf(dead);
  }
  NodeRendezvous mine = NodeRendezvous::Open().value();
  const SharedRegion region = CreateSharedRegion(kBytes).value();
  const NodeMember member = {2, &gone};
  const absl::Status status = mine.Meet(1, region, Event(), {&member, 1}, NanosIn(absl::Minutes(1))).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_EQ(status.message(), "rank 2 on this node has died or given up before it connected to rank 1");
}

// Sends the introduction of a rank that connects, in the form of node_rendezvous.cc, with the descriptors of the rank's
// region and event.
void Introduce(int socket, Rank rank, const Nonce& nonce, int region, int wake) {
  struct {
    std::uint32_t magic = 0x334d5454;
    Rank rank;
    Nonce nonce;
    std::uint64_t nonce_at = 0;
  } introduction = {.rank = rank, .nonce = nonce};
  const int descriptors[] = {region, wake};
  iovec data = {&introduction, sizeof(introduction)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(descriptors))] = {};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(descriptors));
  std::memcpy(CMSG_DATA(header), descriptors, sizeof(descriptors));
  EXPECT_EQ(sendmsg(socket, &message, MSG_NOSIGNAL), static_cast<ssize_t>(sizeof(introduction)));
}

// Descriptors are short when a peer connects, or when it hands its memory over.
TEST(UcxNodeRendezvous, ARankWithTooFewDescriptorsSaysWhatToRaise) {
  const char* const expected[] = {"rank 0 cannot accept the connections of ranks on its node",
                                  "rank 0 cannot take the memory of rank 1", "rank 0 cannot take the memory of rank 1"};
  for (std::size_t free = 0; free < 3; ++free) {
    NodeRendezvous low = NodeRendezvous::Open().value(), high = NodeRendezvous::Open().value();
    const SharedRegion region = CreateSharedRegion(kBytes).value();
    const UniqueFd wake = Event();
    const PeerAddress address = AddressOf(high);
    const NodeMember member = {1, &address};
    const UniqueFd peer = ConnectTo(low.socket_name());
    Introduce(peer.get(), 1, low.nonce(), region.fd.get(), wake.get());
    absl::Status refused;
    {
      const DescriptorLimit few(free);
      refused = low.Meet(0, region, wake, {&member, 1}, NanosIn(absl::Minutes(1))).status();
    }
    EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
    EXPECT_EQ(refused.message(), absl::StrCat(expected[free], ": Too many open files; raise the limit (ulimit -n)"));
  }
}

TEST(UcxNodeRendezvous, ARankWithTooFewDescriptorsToConnectSaysWhatToRaise) {
  NodeRendezvous low = NodeRendezvous::Open().value(), high = NodeRendezvous::Open().value();
  const SharedRegion region = CreateSharedRegion(kBytes).value();
  const UniqueFd wake = Event();
  const PeerAddress address = AddressOf(low);
  const NodeMember member = {0, &address};
  absl::Status refused;
  {
    const DescriptorLimit none(0);
    refused = high.Meet(1, region, wake, {&member, 1}, NanosIn(absl::Minutes(1))).status();
  }
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
  EXPECT_EQ(refused.message(),
            "rank 1 cannot make a connection to rank 0 on its node: Too many open files; raise the limit (ulimit -n)");
}

std::int64_t AddressSpaceInUse() {
  std::int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}

// Gives another process the address `mine`, and returns its address.
PeerAddress Swap(const UniqueFd& socket, const PeerAddress& mine) {
  const std::string blob = Encode(mine);
  EXPECT_EQ(send(socket.get(), blob.data(), blob.size(), 0), static_cast<ssize_t>(blob.size()));
  std::string theirs(4096, '\0');
  const ssize_t bytes = recv(socket.get(), theirs.data(), theirs.size(), 0);
  return DecodeAddress(theirs.substr(0, static_cast<std::size_t>(std::max<ssize_t>(0, bytes)))).value();
}

// Two ranks meet; `rank`, a process of its own, has address space for its own region only.
void MeetInLittleAddressSpace(Rank rank) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  const UniqueFd of_parent(ends[0]), of_child(ends[1]);
  const SharedRegion region = CreateSharedRegion(kLarge).value();
  const std::int64_t end_ns = NanosIn(absl::Minutes(1));
  std::fflush(nullptr);
  const pid_t child = fork();
  const Rank own = child == 0 ? rank : 1 - rank;
  NodeRendezvous rendezvous = NodeRendezvous::Open().value();
  const PeerAddress theirs = Swap(child == 0 ? of_child : of_parent, AddressOf(rendezvous, kLarge));
  const NodeMember other = {1 - own, &theirs};
  if (child != 0) {
    (void)rendezvous.Meet(own, region, Event(), {&other, 1}, end_ns);
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0) << "rank " << rank;
    return;
  }
  const auto room = static_cast<rlim_t>(AddressSpaceInUse() + kLarge / 2);
  const rlimit little = {room, room};
  EXPECT_EQ(setrlimit(RLIMIT_AS, &little), 0);
  const absl::Status status = rendezvous.Meet(own, region, Event(), {&other, 1}, end_ns).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_EQ(
      status.message(),
      absl::StrCat("rank ", own, " cannot map the memory of rank ", 1 - own, ": region of 1073741824 bytes: ",
                   "mmap: Cannot allocate memory; lower TUTTI_ARENA_BYTES (region_bytes) or raise ulimit -v; ",
                   "each of the 2 ranks on this node needs 2147483648 bytes of address space for the memory of all"));
  std::fflush(nullptr);
  _exit(testing::Test::HasFailure() ? 1 : 0);
}

TEST(UcxNodeRendezvous, WhoLacksAddressSpaceForAPeerSaysSo) {
  MeetInLittleAddressSpace(0);
  MeetInLittleAddressSpace(1);
}

}  // namespace
}  // namespace tutti::ucx
