// Ranks on nodes of their own, to one of which the test writes over the connections of the other: what breaks the
// rules, and messages that come in parts.
#include <linux/tcp.h>  // tcp_info of <netinet/tcp.h> has no tcpi_bytes_sent
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <string>
#include <tuple>
#include <vector>

#include "base/unique_fd.h"
#include "gmock/gmock.h"
#include "tests/transports/payload.h"
#include "tests/transports/sockets_at.h"
#include "tests/transports/wired_world.h"
#include "transports/ucx/address.h"
#include "transports/ucx/short_frame.h"
#include "transports/ucx/wire_frame.h"

namespace tutti {
namespace {

using testing::HasSubstr;

std::uint64_t BytesSent(int fd) {
  tcp_info info = {};
  socklen_t bytes = sizeof(info);
  EXPECT_EQ(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes), 0);
  return info.tcpi_bytes_sent;
}

// The other ends of the wires that the rank of address `blob` has accepted, that of the short wire first, over which
// the greetings went.
std::vector<int> ConnectionsTo(const std::string& blob) {
  std::vector<int> found = SocketsConnectedTo(ucx::DecodeAddress(blob)->wire);
  std::sort(found.begin(), found.end(), [](int a, int b) { return BytesSent(a) > BytesSent(b); });
  return found;
}

TEST(UcxWiredBroken, APeerThatBreaksTheRulesIsNamed) {
  const ucx::FrameHeader half = {.bytes = 100, .length = 50};
  const std::string part = std::string(reinterpret_cast<const char*>(&half), sizeof(half)) + Payload(50, 1);
  const ucx::ShortHeader control = {.kind = ucx::ShortHeader::Kind::kControl, .bytes = sizeof(ucx::ControlFrame)};
  const std::string no_control = std::string(reinterpret_cast<const char*>(&control), sizeof(control)) +
                                 std::string(sizeof(ucx::ControlFrame), 'x');
  const std::tuple<std::size_t, std::string, std::string> wrongs[] = {{0, std::string(100, 'x'), "what is no frame"},
                                                                      {0, no_control, "what is no control message"},
                                                                      {1, part + part, "message 0 that overlap"}};
  for (const auto& [connection, bytes, what] : wrongs) {
    const auto transports = Nodes(1).make(2, {.region_bytes = 4096});
    const std::vector<int> from_peer = ConnectionsTo(ConnectBoth(transports)[0]);
    ASSERT_EQ(from_peer.size(), 2u);
    ASSERT_EQ(write(from_peer[connection], bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    absl::Span<const Loss> losses;
    while ((losses = transports[0]->Check()).empty()) {
      transports[0]->Progress();
      transports[0]->Sleep(absl::Now() + absl::Milliseconds(5));
    }
    EXPECT_EQ(losses[0].peer, 1);
    EXPECT_THAT(losses[0].cause.message(), testing::AllOf(HasSubstr("rank 1"), HasSubstr(what)));
  }
}

// Rank 0 of two, whose rank 1 is the test: what it writes to the short wire itself.
struct HalfAMessage {
  static constexpr std::uint32_t kGroup = 5;
  static constexpr std::uint64_t kTag = std::uint64_t{kGroup} << kGroupShift | 3;
  static constexpr std::size_t kBytes = 20'000;

  HalfAMessage() : transports(Nodes(1).make(2, {.region_bytes = 4096})) {
    short_wire = ConnectionsTo(ConnectBoth(transports)[0])[0];
  }
  void Post(std::uint64_t tag, std::size_t bytes, PoisonedOp* receive) {
    receive->data.assign(bytes, '?');
    me().endpoint(1).Recv(tag, receive->data.data(), static_cast<std::int64_t>(bytes), receive);
  }
  void Write(const std::string& bytes) {
    ASSERT_EQ(write(short_wire, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    AwaitDelivery(short_wire);
    me().Drain();
  }
  void WriteHalf() {
    const ucx::ShortHeader header = {.tag = kTag, .bytes = kBytes};
    Write(std::string(reinterpret_cast<const char*>(&header), sizeof(header)) + std::string(kBytes / 2, 's'));
  }
  // Writes the rest of the message, and one more message, which must be received.
  void WriteRest() {
    const ucx::ShortHeader header = {.tag = 9, .bytes = 2};
    PoisonedOp& next = ops.emplace_back();
    Post(9, 2, &next);
    Write(std::string(kBytes / 2, 's') + std::string(reinterpret_cast<const char*>(&header), sizeof(header)) + "ok");
    EXPECT_TRUE(next.calls == 1 && next.status.ok()) << next.status;
  }
  Transport& me() { return *transports[0]; }

  PoisonedOp op;  // of the message; outlives the transports, as do the others
  std::deque<PoisonedOp> ops;
  std::vector<std::unique_ptr<Transport>> transports;
  int short_wire = -1;
};

TEST(UcxWiredShort, AReceiveThatIsGivenUpInTheMiddleOfItsMessageIsNotWrittenTo) {
  for (const bool disconnects : {false, true}) {
    HalfAMessage half;
    PoisonedOp& op = half.op;
    half.Post(HalfAMessage::kTag, HalfAMessage::kBytes, &op);
    half.WriteHalf();
    EXPECT_EQ(op.calls, 0);
    disconnects ? half.me().Disconnect(1, absl::CancelledError("given up")) : half.me().Discard(HalfAMessage::kGroup);
    half.me().Progress();
    EXPECT_TRUE(op.calls == 1 && absl::IsCancelled(op.status)) << op.status;
    if (!disconnects) half.WriteRest();
    EXPECT_TRUE(IsFilledWith(op.data, 'p'));
  }
}

TEST(UcxWiredShort, AMessageOfWhichHalfHasComeIsNotForTheNextGroupOfItsNumber) {
  for (const bool discards : {false, true}) {
    HalfAMessage half;
    half.WriteHalf();
    if (discards) half.me().Discard(HalfAMessage::kGroup);
    half.me().Accept(HalfAMessage::kGroup);
    PoisonedOp& op = half.op;
    half.Post(HalfAMessage::kTag, HalfAMessage::kBytes, &op);
    half.WriteRest();
    EXPECT_EQ(op.calls, 0) << op.status;
    half.WriteHalf();
    half.WriteRest();
    EXPECT_TRUE(op.calls == 1 && op.status.ok()) << op.status;
    half.me().Shutdown(absl::OkStatus());
  }
}

TEST(UcxWiredShort, AReceiveThatIsPostedInTheMiddleOfItsMessageGetsAllOfIt) {
  for (const bool from_any : {false, true}) {
    HalfAMessage half;
    half.WriteHalf();
    PoisonedOp& op = half.op;
    const std::string expected(HalfAMessage::kBytes, 's');
    op.expected = &expected;
    if (from_any) {
      op.data.assign(HalfAMessage::kBytes, '?');
      half.me().RecvFromAny(HalfAMessage::kTag, op.data.data(), HalfAMessage::kBytes, &op);
    } else {
      half.Post(HalfAMessage::kTag, HalfAMessage::kBytes, &op);
    }
    half.WriteRest();
    EXPECT_TRUE(op.calls == 1 && op.status.ok() && op.as_expected) << op.status;
  }
}

TEST(UcxWiredShort, AMessageOfWhichHalfHasComeMayHaveAnotherLength) {
  HalfAMessage half;
  PoisonedOp& op = half.op;
  half.Post(HalfAMessage::kTag, HalfAMessage::kBytes + 1, &op);
  half.WriteHalf();
  EXPECT_THAT(op.status.message(), testing::AllOf(HasSubstr("20000"), HasSubstr("20001")));
  half.WriteRest();
  EXPECT_EQ(op.calls, 1);
}

// Connects two ranks of one node as if each ran in a container of its own; returns their addresses.
std::vector<std::string> ConnectContainers(absl::Span<const std::unique_ptr<Transport>> transports) {
  const std::vector<std::string> addresses = {*transports[0]->Address(), *transports[1]->Address()};
  AsBoth(transports, [&](Rank rank, Transport& me) {
    std::vector<std::string> seen = addresses;
    ucx::PeerAddress other = *ucx::DecodeAddress(seen[1 - rank]);
    other.container = "another";
    seen[1 - rank] = ucx::Encode(other);
    EXPECT_EQ(me.Connect(rank, seen, absl::Now() + absl::Minutes(1)), absl::OkStatus());
  });
  return addresses;
}

// A rank that leaves says goodbye on its node first, and over the wires when its messages have been taken.
TEST(UcxWiredContainers, APeerThatDiesBetweenItsGoodbyesHasLeft) {
  std::vector<std::unique_ptr<Transport>> transports;
  for (Rank rank = 0; rank < 2; ++rank) {
    transports.push_back(MakeUcxTransport({.interface = "lo", .node = "node"}, {.region_bytes = 4096}).value());
  }
  const std::vector<std::string> addresses = ConnectContainers(transports);
  const std::vector<int> links = SocketsConnectedTo(AbstractAddress(ucx::DecodeAddress(addresses[0])->socket));
  const std::vector<int> wires = ConnectionsTo(addresses[0]);
  ASSERT_EQ(links.size(), 1u);
  ASSERT_EQ(wires.size(), 2u);
  Transport& me = *transports[0];
  const ucx::ControlFrame goodbye = ucx::Encode({.kind = ucx::Control::Kind::kGoodbye, .from = 1, .cause = {}});
  ASSERT_EQ(send(links[0], goodbye.data(), goodbye.size(), 0), static_cast<ssize_t>(goodbye.size()));
  EXPECT_FALSE(me.HasLeft(1)) << "its last messages may be on their way";
  shutdown(links[0], SHUT_RDWR);
  EXPECT_FALSE(me.HasLeft(1)) << "its last messages may be on their way";
  for (const int wire : wires) shutdown(wire, SHUT_RDWR);
  for (int ms = 0; !me.HasLeft(1) && ms < 10'000; ++ms) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_TRUE(me.HasLeft(1));
  EXPECT_TRUE(me.Check().empty()) << "it has said goodbye";
}

bool IsListenedTo(const std::string& blob) {
  const std::string listened = ucx::DecodeAddress(blob)->wire;
  sockaddr_storage address = {};
  std::memcpy(&address, listened.data(), listened.size());
  const UniqueFd fd(socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), static_cast<socklen_t>(listened.size())) == 0;
}

TEST(UcxWiredMeeting, NobodyListensOnceRanksAreConnected) {
  const auto transports = Nodes(1).make(2, {.region_bytes = 4096});
  EXPECT_TRUE(IsListenedTo(*transports[0]->Address()));
  for (const std::string& address : ConnectBoth(transports)) EXPECT_FALSE(IsListenedTo(address));
}

TEST(UcxWiredMeeting, NobodyListensOnceARankThatCouldNotConnectHasShutDown) {
  const auto transports = Nodes(1).make(2, {.region_bytes = 4096});
  const std::vector<std::string> addresses = {*transports[0]->Address(), *transports[1]->Address()};
  EXPECT_FALSE(transports[0]->Connect(0, addresses, absl::Now() + absl::Milliseconds(50)).ok());
  transports[0]->Shutdown(absl::InternalError("cannot connect"));
  EXPECT_FALSE(IsListenedTo(addresses[0]));
}

}  // namespace
}  // namespace tutti
