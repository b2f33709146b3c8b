// Ranks as processes that are killed and stopped. The suite's name ends in DeathTest so that GoogleTest runs it first:
// its ranks are forked before this process has threads or a UCX context.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <deque>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "tests/transports/conformance.h"

namespace tutti {
namespace {

using testing::HasSubstr;

// One direction of a pipe that carries whole texts.
class TextPipe {
 public:
  TextPipe() { EXPECT_EQ(pipe(ends_), 0); }
  ~TextPipe() {
    close(ends_[0]);
    close(ends_[1]);
  }
  TextPipe(const TextPipe&) = delete;
  TextPipe& operator=(const TextPipe&) = delete;

  void Write(const std::string& text) {
    const std::string frame = std::string(reinterpret_cast<const char*>(&kMark), 1) + text;
    const auto bytes = static_cast<std::uint32_t>(frame.size());
    ASSERT_EQ(write(ends_[1], &bytes, sizeof(bytes)), static_cast<ssize_t>(sizeof(bytes)));
    ASSERT_EQ(write(ends_[1], frame.data(), frame.size()), static_cast<ssize_t>(frame.size()));
  }
  std::string Read() {
    std::uint32_t bytes = 0;
    ReadAll(&bytes, sizeof(bytes));
    std::string frame(bytes, '\0');
    ReadAll(frame.data(), frame.size());
    return frame.empty() ? "nothing: the rank is gone" : frame.substr(1);
  }
  // The writing side of a process that has forked its writers: so that Read notices when they are gone.
  void OnlyRead() { close(std::exchange(ends_[1], -1)); }

 private:
  static constexpr char kMark = 't';

  void ReadAll(void* data, std::size_t bytes) {
    auto* at = static_cast<char*>(data);
    while (bytes > 0) {
      const ssize_t got = read(ends_[0], at, bytes);
      if (got <= 0) return;
      at += got;
      bytes -= static_cast<std::size_t>(got);
    }
  }

  int ends_[2] = {-1, -1};
};

// What a forked rank has: its transport, and texts to and from the test.
struct Child : RankDriver {
  Child(Rank r, Transport* t, TextPipe* orders_pipe, TextPipe* reports_pipe)
      : RankDriver(r, t, [] {}), orders(*orders_pipe), reports(*reports_pipe) {}
  TextPipe& orders;
  TextPipe& reports;
};

class ForkedRanks {
 public:
  ForkedRanks(int size, const TransportMaker& maker, const std::function<void(Child&)>& body)
      : orders_(static_cast<std::size_t>(size)), reports_(static_cast<std::size_t>(size)) {
    std::fflush(nullptr);  // or every child prints it again
    for (Rank rank = 0; rank < size; ++rank) {
      pids_.push_back(fork());
      if (pids_.back() == 0) RunChild(rank, size, maker, body);
    }
    for (TextPipe& pipe : reports_) pipe.OnlyRead();
    std::vector<std::string> addresses;
    for (Rank rank = 0; rank < size; ++rank) addresses.push_back(Report(rank));
    for (TextPipe& orders : orders_) {
      for (const std::string& address : addresses) orders.Write(address);
    }
  }
  ~ForkedRanks() {
    for (Rank rank = 0; rank < static_cast<Rank>(pids_.size()); ++rank) Kill(rank, SIGKILL);
    for (const pid_t pid : pids_) waitpid(pid, nullptr, 0);
  }

  std::string Report(Rank rank) { return reports_[static_cast<std::size_t>(rank)].Read(); }
  void Order(Rank rank) { orders_[static_cast<std::size_t>(rank)].Write("go"); }
  void Kill(Rank rank, int signal) {
    if (pids_[static_cast<std::size_t>(rank)] > 0) kill(pids_[static_cast<std::size_t>(rank)], signal);
  }
  // True when the rank ended by itself and without a failed expectation.
  bool EndsWell(Rank rank) {
    int status = 0;
    waitpid(std::exchange(pids_[static_cast<std::size_t>(rank)], -1), &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }

 private:
  [[noreturn]] void RunChild(Rank rank, int size, const TransportMaker& maker,
                             const std::function<void(Child&)>& body) {
    TextPipe& orders = orders_[static_cast<std::size_t>(rank)];
    TextPipe& reports = reports_[static_cast<std::size_t>(rank)];
    for (Rank other = 0; other < size; ++other) {
      if (other != rank) reports_[static_cast<std::size_t>(other)].OnlyRead();
    }
    {
      TransportOptions options;
      options.region_bytes = 1 << 20;
      const std::unique_ptr<Transport> transport = std::move(maker.make(1, options)[0]);
      reports.Write(*transport->Address());
      std::vector<std::string> addresses;
      for (Rank other = 0; other < size; ++other) addresses.push_back(orders.Read());
      const absl::Status connected = transport->Connect(rank, addresses, absl::Now() + absl::Minutes(1));
      EXPECT_TRUE(connected.ok()) << connected;
      Child child(rank, transport.get(), &orders, &reports);
      if (connected.ok()) body(child);
    }
    std::fflush(nullptr);
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }

  std::deque<TextPipe> orders_;
  std::deque<TextPipe> reports_;
  std::vector<pid_t> pids_;
};

class UcxProcessDeathTest : public testing::TestWithParam<TransportMaker> {};

// Moves messages until it is killed.
void ServeForEver(Child& me) {
  me.DriveUntil([] { return false; });
}

TEST_P(UcxProcessDeathTest, CarriesMessagesAndMapsRegions) {
  ForkedRanks ranks(2, GetParam(), [&](Child& me) {
    const Rank peer = 1 - me.rank;
    me.transport.region().base[77] = static_cast<std::byte>(me.rank + 1);
    const std::string out = Pattern((1 << 20) + 3, static_cast<unsigned>(me.rank));
    std::string in(out.size(), '?');
    Op sent, received;
    me.Send(peer, 1, out, &sent);
    me.Recv(peer, 1, &in, &received);
    me.Await({&sent, &received});
    EXPECT_TRUE(in == Pattern(in.size(), static_cast<unsigned>(peer)));
    const MappedRegion theirs = me.transport.endpoint(peer).region();
    EXPECT_EQ(theirs.base != nullptr, GetParam().maps_peers);
    if (theirs.base != nullptr) {
      EXPECT_EQ(theirs.base[77], static_cast<std::byte>(peer + 1));
    }
    me.transport.Shutdown(absl::OkStatus());
  });
  EXPECT_TRUE(ranks.EndsWell(0));
  EXPECT_TRUE(ranks.EndsWell(1));
}

TEST_P(UcxProcessDeathTest, AKilledRankIsNamedByEverySurvivor) {
  ForkedRanks ranks(3, GetParam(), [](Child& me) {
    if (me.rank == 2) {
      me.reports.Write("ready");
      ServeForEver(me);
    }
    std::string in(100, '?');
    const std::string out = Pattern(3'000'000, 1);
    Op received, sent;
    me.Recv(2, 1, &in, &received);  // is never sent
    me.Send(2, 2, out, &sent);      // is never received
    me.reports.Write("ready");
    const absl::Status error = me.AwaitError();
    me.reports.Write(absl::StrCat(absl::FormatTime(absl::RFC3339_full, absl::Now(), absl::UTCTimeZone())));
    me.reports.Write(error.ToString());
    me.transport.Shutdown(error);
    EXPECT_EQ(received.calls, 1);
    EXPECT_EQ(received.status, error);
    EXPECT_EQ(sent.calls, 1);
    EXPECT_EQ(sent.status, error);
  });
  for (Rank rank = 0; rank < 3; ++rank) EXPECT_EQ(ranks.Report(rank), "ready");
  const absl::Time killed = absl::Now();
  ranks.Kill(2, SIGKILL);  // and is not waited for: it stays a zombie
  for (Rank rank = 0; rank < 2; ++rank) {
    absl::Time noticed;
    EXPECT_TRUE(absl::ParseTime(absl::RFC3339_full, ranks.Report(rank), &noticed, nullptr));
    RecordProperty(absl::StrCat("rank", rank, "_noticed_after"), absl::FormatDuration(noticed - killed));
    const std::string error = ranks.Report(rank);
    EXPECT_THAT(error, HasSubstr("UNAVAILABLE: rank 2 died"));
  }
  EXPECT_TRUE(ranks.EndsWell(0));
  EXPECT_TRUE(ranks.EndsWell(1));
}

TEST_P(UcxProcessDeathTest, TheFirstDeathIsNamedNotTheSurvivorThatLeftBecauseOfIt) {
  ForkedRanks ranks(3, GetParam(), [](Child& me) {
    me.reports.Write("ready");
    if (me.rank == 2) ServeForEver(me);
    if (me.rank == 1) me.orders.Read();  // looks only when rank 0 is gone too
    const absl::Status error = me.AwaitError();
    me.transport.Shutdown(error);
    me.reports.Write(error.ToString());
  });
  for (Rank rank = 0; rank < 3; ++rank) EXPECT_EQ(ranks.Report(rank), "ready");
  ranks.Kill(2, SIGKILL);
  EXPECT_THAT(ranks.Report(0), HasSubstr("rank 2 died"));
  EXPECT_TRUE(ranks.EndsWell(0));
  ranks.Order(1);
  EXPECT_THAT(ranks.Report(1), HasSubstr("rank 2 died"));
  EXPECT_TRUE(ranks.EndsWell(1));
}

TEST_P(UcxProcessDeathTest, AStoppedRankIsNotAnError) {
  ForkedRanks ranks(2, GetParam(), [](Child& me) {
    char byte = 0;
    Op op;
    me.reports.Write("ready");
    if (me.rank == 1) {
      me.orders.Read();
      me.transport.endpoint(0).Send(1, &byte, 1, &op);
    } else {
      me.transport.endpoint(1).Recv(1, &byte, 1, &op);
      me.orders.Read();
      for (const absl::Time end = absl::Now() + absl::Milliseconds(50); absl::Now() < end;) {
        me.transport.Progress();
        EXPECT_TRUE(me.transport.Check().ok()) << me.transport.Check();
        me.transport.Sleep(end);
      }
      me.reports.Write("patient");
    }
    me.Await({&op});
    EXPECT_TRUE(op.status.ok()) << op.status;
    me.transport.Shutdown(absl::OkStatus());
  });
  for (Rank rank = 0; rank < 2; ++rank) EXPECT_EQ(ranks.Report(rank), "ready");
  ranks.Kill(1, SIGSTOP);
  ranks.Order(0);
  EXPECT_EQ(ranks.Report(0), "patient");
  ranks.Kill(1, SIGCONT);
  ranks.Order(1);
  EXPECT_TRUE(ranks.EndsWell(0));
  EXPECT_TRUE(ranks.EndsWell(1));
}

std::vector<std::unique_ptr<Transport>> MakeWithNode(const std::string& node, int size,
                                                     const TransportOptions& options) {
  std::vector<std::unique_ptr<Transport>> transports;
  for (int i = 0; i < size; ++i) {
    transports.push_back(MakeUcxTransport({.interface = "lo", .node = node}, options).value());
  }
  return transports;
}

INSTANTIATE_TEST_SUITE_P(Ucx, UcxProcessDeathTest,
                         testing::Values(TransportMaker{"one_node", true,
                                                        [](int n, const TransportOptions& o) {
                                                          return MakeWithNode("", n, o);
                                                        }},
                                         TransportMaker{"many_nodes", false,
                                                        [](int n, const TransportOptions& o) {
                                                          return MakeWithNode(absl::StrCat("node", getpid()), n, o);
                                                        }}),
                         NameOfMaker);

}  // namespace
}  // namespace tutti
