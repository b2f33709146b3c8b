#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/harness/stopped_clock.h"
#include "tests/transports/conformance.h"
#include "transports/ucx/address.h"

namespace tutti {
namespace {

std::vector<std::unique_ptr<Transport>> MakeOneNode(int size, const TransportOptions& options) {
  std::vector<std::unique_ptr<Transport>> transports;
  for (Rank rank = 0; rank < size; ++rank) transports.push_back(MakeUcxTransport({}, options).value());
  return transports;
}

// Every rank claims to be a node of its own: messages go over TCP, and no memory is mapped.
std::vector<std::unique_ptr<Transport>> MakeManyNodes(int size, const TransportOptions& options) {
  std::vector<std::unique_ptr<Transport>> transports;
  for (Rank rank = 0; rank < size; ++rank) {
    transports.push_back(MakeUcxTransport({.interface = "lo", .node = absl::StrCat("node", rank)}, options).value());
  }
  return transports;
}

const TransportMaker kOneNode = {.name = "one_node", .make = MakeOneNode};
const TransportMaker kManyNodes = {.name = "many_nodes", .maps_peers = false, .make = MakeManyNodes};
INSTANTIATE_TEST_SUITE_P(Ucx, TransportConformance, testing::Values(kOneNode, kManyNodes), NameOfMaker);
INSTANTIATE_TEST_SUITE_P(Ucx, TransportConformanceSlow, testing::Values(kOneNode, kManyNodes), NameOfMaker);

// The memory of this process that is resident, in bytes.
std::int64_t Resident() {
  std::ifstream file("/proc/self/statm");
  std::int64_t total = 0, resident = 0;
  file >> total >> resident;
  return resident * getpagesize();
}

// A peer goes on sending to a group that the receiver has discarded; the receiver's memory must not grow. The first
// tenth of the messages does not count: both threads touch their stacks for the first time, which AddressSanitizer
// makes large.
void SendToADiscardedGroup(const std::vector<std::unique_ptr<Transport>>& transports, std::size_t bytes, int messages) {
  constexpr std::uint32_t kGroup = 5;
  const std::vector<std::string> addresses = {*transports[0]->Address(), *transports[1]->Address()};
  const absl::Time deadline = absl::Now() + absl::Minutes(4);  // a bound for slow machines
  std::atomic<int> sent = 0;
  std::atomic<int> seen = 0;  // messages that the receiver has looked for, to throw them away
  std::thread sender([&] {
    Transport& me = *transports[1];
    EXPECT_TRUE(me.Connect(1, addresses, deadline).ok());
    const std::string data(bytes, 'x');
    for (int i = 0; i < messages && absl::Now() < deadline; ++i) {
      Op op;
      me.endpoint(0).Send((std::uint64_t{kGroup} << kGroupShift) | static_cast<std::uint64_t>(i), data.data(),
                          static_cast<std::int64_t>(bytes), &op);
      while (op.calls == 0 && absl::Now() < deadline) {
        if (!me.Progress()) me.Sleep(absl::Now() + absl::Milliseconds(1));
      }
      EXPECT_TRUE(op.status.ok()) << op.status;
      ++sent;
      // The pause lets the receiver throw messages away as fast as they come.
      while (i % 100 == 99 && seen <= i && absl::Now() < deadline) absl::SleepFor(absl::Microseconds(100));
    }
    me.Shutdown(absl::OkStatus());
  });
  Transport& me = *transports[0];
  EXPECT_TRUE(me.Connect(0, addresses, deadline).ok());
  me.Discard(kGroup);
  std::optional<std::int64_t> before;
  while (seen < messages && absl::Now() < deadline) {
    if (!before.has_value() && sent >= messages / 10) before = Resident();
    const int sent_before = sent;
    me.Drain();
    seen = sent_before;
    me.Sleep(absl::Now() + absl::Milliseconds(1));
  }
  EXPECT_TRUE(before.has_value());
  EXPECT_LT(Resident() - before.value_or(0), static_cast<std::int64_t>(bytes) * messages / 4);
  EXPECT_LT(absl::Now(), deadline);
  sender.join();
  me.Shutdown(absl::OkStatus());
}

TEST(UcxTransport, MessagesOfADiscardedGroupTakeNoMemory) {
  for (const auto& make : {MakeOneNode, MakeManyNodes}) {
    SendToADiscardedGroup(make(2, {.region_bytes = 4096}), 4000, 10'000);    // these messages come as a whole
    SendToADiscardedGroup(make(2, {.region_bytes = 4096}), 4'000'000, 120);  // these messages are announced first
  }
}

// The number of TCP connections of this process.
int EstablishedTcp() {
  std::set<std::string> own;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    if (target.rfind("socket:[", 0) == 0) own.insert(target.substr(8, target.size() - 9));
  }
  int established = 0;
  std::ifstream table("/proc/self/net/tcp");
  for (std::string line; std::getline(table, line);) {
    // Columns: slot, local, remote, state (01: established), queues, timer, retransmits, user, timeout, inode.
    const std::vector<std::string> columns = absl::StrSplit(line, ' ', absl::SkipEmpty());
    if (columns.size() > 9 && columns[3] == "01" && own.count(columns[9]) > 0) ++established;
  }
  return established;
}

int TcpConnectionsOf(std::vector<std::unique_ptr<Transport>> transports) {
  const std::vector<std::string> addresses = {*transports[0]->Address(), *transports[1]->Address()};
  const absl::Time deadline = absl::Now() + absl::Minutes(1);
  std::thread other([&] { EXPECT_TRUE(transports[1]->Connect(1, addresses, deadline).ok()); });
  EXPECT_TRUE(transports[0]->Connect(0, addresses, deadline).ok());
  other.join();
  const int established = EstablishedTcp();
  other = std::thread([&] { transports[1]->Shutdown(absl::OkStatus()); });
  transports[0]->Shutdown(absl::OkStatus());
  other.join();
  return established;
}

TEST(UcxTransport, RanksOfANodeDoNotFallBackToTcp) {
  EXPECT_EQ(TcpConnectionsOf(MakeOneNode(2, {.region_bytes = 4096})), 0);
  EXPECT_GT(TcpConnectionsOf(MakeManyNodes(2, {.region_bytes = 4096})), 0);
}

TEST(UcxTransport, ARankOfAnotherUserNeedsANodeNameOfItsOwn) {
  const auto transports = MakeOneNode(2, {.region_bytes = 4096});
  ucx::PeerAddress other = ucx::DecodeAddress(*transports[1]->Address()).value();
  other.user = geteuid() + 1;
  const absl::Status refused =
      transports[0]->Connect(0, {*transports[0]->Address(), ucx::Encode(other)}, absl::Now() + absl::Minutes(1));
  EXPECT_EQ(refused.code(), absl::StatusCode::kPermissionDenied) << refused;
  EXPECT_NE(refused.message().find("TUTTI_NODE"), absl::string_view::npos) << refused;
}

TEST(UcxTransport, ConnectEndsAtItsDeadlineThoughTheSystemsClockStandsStill) {
  for (const auto& make : {MakeOneNode, MakeManyNodes}) {
    const std::vector<std::unique_ptr<Transport>> transports = make(2, {.region_bytes = 4096});
    const std::vector<std::string> addresses = {*transports[0]->Address(), *transports[1]->Address()};
    const StoppedClock stopped;
    const absl::Status alone = transports[0]->Connect(0, addresses, absl::Now() + absl::Milliseconds(50));
    EXPECT_EQ(alone.code(), absl::StatusCode::kDeadlineExceeded) << alone;
    EXPECT_NE(alone.message().find("rank 1"), absl::string_view::npos) << alone;
  }
}

// Without Tutti's settings UCX takes over SIGHUP to log its state, and SIGHUP no longer ends the process.
TEST(UcxTransport, TakesNoSignalOfTheProcess) {
  ASSERT_TRUE(MakeUcxTransport({}, {.region_bytes = 4096}).ok());
  struct sigaction action;
  ASSERT_EQ(sigaction(SIGHUP, nullptr, &action), 0);
  EXPECT_TRUE(action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN);
}

TEST(UcxTransport, AnUnknownInterfaceIsNamedWithThoseThatExist) {
  const absl::Status status = MakeUcxTransport({.interface = "nosuch0", .node = ""}, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("'nosuch0'"), absl::string_view::npos) << status;
  EXPECT_NE(status.message().find("lo"), absl::string_view::npos) << status;
}

}  // namespace
}  // namespace tutti
