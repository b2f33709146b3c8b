// Ranks as processes that are killed and stopped. The suite's name ends in DeathTest so that GoogleTest runs it first:
// its ranks are forked before this process has threads or a UCX context.
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>

#include "absl/strings/str_cat.h"
#include "base/descriptors.h"
#include "gmock/gmock.h"
#include "tests/harness/stopped_clock.h"
#include "tests/transports/conformance.h"
#include "tests/transports/forked_ranks.h"
#include "tests/transports/payload.h"

namespace tutti {
namespace {

using testing::HasSubstr;

class UcxProcessDeathTest : public testing::TestWithParam<TransportMaker> {};

// Moves messages until it is killed.
void ServeForEver(Child& me) {
  me.DriveUntil([] { return false; });
}

TEST_P(UcxProcessDeathTest, CarriesMessagesAndMapsRegions) {
  ForkedRanks ranks(2, GetParam(), [&](Child& me) {
    const Rank peer = 1 - me.rank;
    me.transport.region().base[77] = static_cast<std::byte>(me.rank + 1);
    const std::string out = Payload((1 << 20) + 3, static_cast<unsigned>(me.rank));
    EXPECT_TRUE(me.Exchange(peer, 1, out) == Payload(out.size(), static_cast<unsigned>(peer)));
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
    const std::string out = Payload(kLongerThanBuffers, 1);
    Op received, sent;
    me.Recv(2, 1, &in, &received);  // a message that nobody sends
    me.Send(2, 2, out, &sent);      // a message that nobody receives
    me.reports.Write("ready");
    const absl::Status error = me.AwaitError();
    me.reports.Write(absl::StrCat(absl::FormatTime(absl::RFC3339_full, absl::Now(), absl::UTCTimeZone())));
    me.reports.Write(error.ToString());
    me.transport.Shutdown(error);
    EXPECT_EQ(received.calls, 1);
    // The other survivor may have told of the death first.
    EXPECT_THAT(received.status.ToString(), HasSubstr("UNAVAILABLE: rank 2 died"));
    EXPECT_EQ(sent.calls, 1);
    EXPECT_THAT(sent.status.ToString(), HasSubstr("UNAVAILABLE: rank 2 died"));
  });
  for (Rank rank = 0; rank < 3; ++rank) EXPECT_EQ(ranks.Report(rank), "ready");
  const absl::Time killed = absl::Now();
  ranks.Kill(2, SIGKILL);  // nobody waits for the process, which stays a zombie
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

TEST_P(UcxProcessDeathTest, WhatIsUnderWayWithAKilledRankEndsAndTheOthersGoOn) {
  ForkedRanks ranks(3, GetParam(), [](Child& me) {
    const std::string small = Payload(100, 1), middle = Payload(50'000, 2), large = Payload(kLongerThanBuffers, 3);
    if (me.rank == 2) {
      std::deque<Op> sent(2);  // may be in the middle of their receives when this rank is killed
      me.Send(0, 1, large, &sent[0]);
      me.Send(1, 1, large, &sent[1]);
      me.reports.Write("ready");
      // In UCX's shared memory a rank has one queue for all senders, which stands still for good when one of them dies
      // while it writes there: on one node this rank is killed while it rests.
      while (GetParam().maps_peers) pause();
      ServeForEver(me);
    }
    std::deque<Op> ops(8);
    std::vector<std::string> in(3, std::string(large.size(), '?'));
    me.Recv(2, 1, &in[0], &ops[0]);  // may have come as a whole
    me.Recv(2, 2, &in[1], &ops[1]);
    me.Recv(2, 3, &in[2], &ops[2]);
    me.Send(2, 4, large, &ops[3]);  // a message that nobody receives
    me.Send(2, 5, large, &ops[4]);
    me.Send(2, 6, middle, &ops[5]);
    for (std::uint64_t i = 6; i < 8; ++i) me.Send(2, 100 + i, small, &ops[i]);
    me.reports.Write("ready");
    const auto ended = [&] { return std::all_of(ops.begin(), ops.end(), [](const Op& op) { return op.calls > 0; }); };
    int rounds_after = 0;
    std::uint64_t round = 0;
    // Messages between the survivors, before, during and after the death; both make equally many rounds.
    for (bool over = false; !over; ++round) {
      const Rank peer = 1 - me.rank;
      rounds_after += ended() ? 1 : 0;
      const std::string mine = Payload(200'000, static_cast<unsigned>(round)) + (rounds_after > 20 ? "y" : "n");
      std::string theirs(mine.size(), '?');
      Op sent, received;
      me.Recv(peer, 1000 + round, &theirs, &received);
      me.Send(peer, 1000 + round, mine, &sent);
      me.CheckUntil([&] { return sent.calls > 0 && received.calls > 0; });
      ASSERT_TRUE(sent.status.ok() && received.status.ok()) << sent.status << received.status;
      ASSERT_TRUE(theirs.substr(0, 200'000) == Payload(200'000, static_cast<unsigned>(round)));
      over = mine.back() == 'y' && theirs.back() == 'y';
    }
    ASSERT_EQ(me.transport.Check().size(), 1u);
    const Loss loss = me.transport.Check()[0];
    EXPECT_EQ(loss.peer, 2);
    for (const std::size_t i : {1u, 2u, 3u, 4u}) EXPECT_EQ(ops[i].status, loss.cause) << i;
    for (const Op& op : ops) EXPECT_TRUE(op.calls == 1 && (op.status.ok() || op.status == loss.cause)) << op.status;
    me.reports.Write(loss.cause.ToString());
    me.transport.Shutdown(absl::OkStatus());
    for (const Op& op : ops) EXPECT_EQ(op.calls, 1);
  });
  for (Rank rank = 0; rank < 3; ++rank) EXPECT_EQ(ranks.Report(rank), "ready");
  ranks.Kill(2, SIGKILL);
  for (Rank rank = 0; rank < 2; ++rank) EXPECT_THAT(ranks.Report(rank), HasSubstr("UNAVAILABLE: rank 2 died"));
  EXPECT_TRUE(ranks.EndsWell(0));
  EXPECT_TRUE(ranks.EndsWell(1));
}

constexpr std::uint64_t kAnsweredTooLate = 1002;

// Rank 2, which is stopped as soon as it is ready: when it goes on, it answers messages of ranks that have given it up.
void AnswerTooLate(Child& me, bool maps_peers) {
  std::vector<std::string> in(2, std::string(kLongerThanBuffers, '?'));
  std::deque<Op> received(2);
  for (const Rank rank : {0, 1}) {
    me.Recv(rank, kAnsweredTooLate, &in[static_cast<std::size_t>(rank)], &received[static_cast<std::size_t>(rank)]);
  }
  me.reports.Write("ready");
  // Between nodes UCX 1.13 reads freed memory where a rank still has bytes to write to a peer that it has given up, and
  // that peer closes its side: there, rank 2 does not look at its losses.
  if (!maps_peers) ServeForEver(me);
  me.CheckUntil([&] { return me.transport.Check().size() == 2; });
  me.transport.Shutdown(absl::OkStatus());
  for (const Op& op : received) EXPECT_TRUE(op.calls == 1 && !op.status.ok()) << op.status;
  for (const std::string& message : in) EXPECT_EQ(message.find(std::string(16, '!')), std::string::npos);
}

TEST_P(UcxProcessDeathTest, AStoppedRankCanBeGivenUpAndTheOthersGoOn) {
  ForkedRanks ranks(3, GetParam(), [](Child& me) {
    if (me.rank == 2) return AnswerTooLate(me, GetParam().maps_peers);
    me.reports.Write("ready");
    me.orders.Read();
    const absl::Status cause = absl::DeadlineExceededError("rank 2 takes nothing");
    const std::string small(4096, 'x'), large = Payload(kLongerThanBuffers, 1);
    std::string in(100, '?'), unanswered = large;
    std::deque<Op> ops(1003);                              // more than the memory between two ranks holds
    me.Send(2, kAnsweredTooLate, unanswered, &ops[1002]);  // waits for an answer of rank 2, in whose memory is room yet
    for (std::size_t i = 0; i < 1000; ++i) me.Send(2, i, small, &ops[i]);
    me.Send(2, 1000, large, &ops[1000]);
    me.Recv(2, 1001, &in, &ops[1001]);
    const absl::Time flooded = absl::Now() + absl::Milliseconds(20);
    me.CheckUntil([&] { return absl::Now() > flooded; });
    me.transport.Disconnect(2, cause);
    me.CheckUntil([&] { return std::all_of(ops.begin(), ops.end(), [](const Op& op) { return op.calls > 0; }); });
    for (const Op& op : ops) EXPECT_TRUE(op.calls == 1 && (op.status.ok() || op.status == cause)) << op.status;
    EXPECT_EQ(ops[1000].status, cause);
    EXPECT_EQ(ops[1001].status, cause);
    EXPECT_EQ(ops[1002].status, cause);
    unanswered.assign(unanswered.size(), '!');  // nobody reads this memory now
    me.reports.Write("given up");
    me.orders.Read();
    std::string theirs(large.size(), '?');
    Op sent, received;
    me.Recv(1 - me.rank, 1, &theirs, &received);
    me.Send(1 - me.rank, 1, large, &sent);
    me.CheckUntil([&] { return sent.calls > 0 && received.calls > 0; });
    EXPECT_TRUE(sent.status.ok() && received.status.ok() && theirs == large) << sent.status << received.status;
    me.transport.Shutdown(absl::OkStatus());
  });
  for (Rank rank = 0; rank < 3; ++rank) EXPECT_EQ(ranks.Report(rank), "ready");
  ranks.Kill(2, SIGSTOP);
  for (Rank rank = 0; rank < 2; ++rank) ranks.Order(rank);
  for (Rank rank = 0; rank < 2; ++rank) EXPECT_EQ(ranks.Report(rank), "given up");
  ranks.Kill(2, SIGCONT);  // what rank 2 does from here on disturbs nobody
  if (GetParam().maps_peers) {
    EXPECT_TRUE(ranks.EndsWell(2));
  }
  for (Rank rank = 0; rank < 2; ++rank) ranks.Order(rank);
  EXPECT_TRUE(ranks.EndsWell(0));
  EXPECT_TRUE(ranks.EndsWell(1));
}

TEST_P(UcxProcessDeathTest, ADeathIsFoundThoughTheSystemsClockStandsStill) {
  ForkedRanks ranks(2, GetParam(), [](Child& me) {
    const StoppedClock stopped;
    me.reports.Write("ready");
    if (me.rank == 1) ServeForEver(me);
    const absl::Status error = me.AwaitError();
    me.transport.Shutdown(error);
    me.reports.Write(error.ToString());
  });
  for (Rank rank = 0; rank < 2; ++rank) EXPECT_EQ(ranks.Report(rank), "ready");
  ranks.Kill(1, SIGKILL);
  EXPECT_THAT(ranks.Report(0), HasSubstr("UNAVAILABLE: rank 1 died"));
  EXPECT_TRUE(ranks.EndsWell(0));
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
        EXPECT_TRUE(me.FirstLoss().ok()) << me.FirstLoss();
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

// Ranks 0 and 1 send more than the memory between two ranks holds to rank 2, which is stopped. Then `end` ends the
// ranks.
void FloodAStoppedRank(const TransportMaker& maker, const std::function<void(ForkedRanks&)>& end,
                       const absl::Status& said_by_rank_0, const std::string& expected) {
  ForkedRanks ranks(3, maker, [&](Child& me) {
    me.reports.Write("ready");
    if (me.rank == 2) ServeForEver(me);
    me.orders.Read();
    const std::string data(4096, 'x');
    std::deque<Op> ops(1000);
    for (Op& op : ops) me.Send(2, static_cast<std::uint64_t>(&op - &ops[0]), data, &op);
    const absl::Time flooded = absl::Now() + absl::Milliseconds(20);
    while (absl::Now() < flooded) {
      me.transport.Progress();
      me.transport.Sleep(flooded);
    }
    me.reports.Write("flooded");
    me.orders.Read();
    const absl::Status error = me.rank == 0 && !said_by_rank_0.ok() ? said_by_rank_0 : me.AwaitError();
    const absl::Time start = absl::Now();
    me.transport.Shutdown(error);
    EXPECT_LT(absl::Now(), start + absl::Seconds(30));  // two seconds, and a stall of the machine
    for (const Op& op : ops) {
      EXPECT_EQ(op.calls, 1);
      // The other survivor may have told of the death first.
      if (!op.status.ok()) {
        EXPECT_THAT(op.status.ToString(), HasSubstr(expected));
      }
    }
    me.reports.Write(error.ToString());
  });
  for (Rank rank = 0; rank < 3; ++rank) EXPECT_EQ(ranks.Report(rank), "ready");
  ranks.Kill(2, SIGSTOP);
  for (Rank rank = 0; rank < 2; ++rank) ranks.Order(rank);
  for (Rank rank = 0; rank < 2; ++rank) EXPECT_EQ(ranks.Report(rank), "flooded");
  end(ranks);
  for (Rank rank = 0; rank < 2; ++rank) ranks.Order(rank);
  for (Rank rank = 0; rank < 2; ++rank) EXPECT_THAT(ranks.Report(rank), HasSubstr(expected));
  for (Rank rank = 0; rank < 2; ++rank) EXPECT_TRUE(ranks.EndsWell(rank));
}

TEST_P(UcxProcessDeathTest, AFloodedRankThatIsKilledIsNamedByEverySurvivor) {
  const auto kill = [](ForkedRanks& ranks) { ranks.Kill(2, SIGKILL); };
  FloodAStoppedRank(GetParam(), kill, absl::OkStatus(), "UNAVAILABLE: rank 2 died");
}

TEST_P(UcxProcessDeathTest, AFloodedRankThatStaysStoppedKeepsNobodyFromEnding) {
  const absl::Status late = absl::DeadlineExceededError("waited 1s for rank 2");
  FloodAStoppedRank(
      GetParam(), [](ForkedRanks&) {}, late, "waited 1s for rank 2");
}

TEST_P(UcxProcessDeathTest, WhoHasSaidGoodbyeHasLeftAlsoWhenItIsKilledLater) {
  ForkedRanks ranks(2, GetParam(), [](Child& me) {
    if (me.rank == 1) {
      me.transport.Shutdown(absl::OkStatus());
      me.reports.Write("left");
      me.orders.Read();  // waits until this process is killed
    }
    me.DriveUntil([&] { return me.transport.HasLeft(1); });
    me.reports.Write("noticed");
    me.orders.Read();
    for (const absl::Time end = absl::Now() + absl::Milliseconds(100); absl::Now() < end;) {
      me.transport.Progress();
      EXPECT_TRUE(me.FirstLoss().ok()) << me.FirstLoss();
      EXPECT_TRUE(me.transport.HasLeft(1));
      me.transport.Sleep(end);
    }
    me.transport.Shutdown(absl::OkStatus());
  });
  EXPECT_EQ(ranks.Report(1), "left");
  EXPECT_EQ(ranks.Report(0), "noticed");
  ranks.Kill(1, SIGKILL);
  ranks.Order(0);
  EXPECT_TRUE(ranks.EndsWell(0));
}

TEST_P(UcxProcessDeathTest, AForkedChildThatEndsDisturbsNobody) {
  ForkedRanks ranks(2, GetParam(), [](Child& me) {
    if (me.rank == 0) {
      const pid_t returns = fork();
      if (returns == 0) return;  // the child then destroys its copy of the transport
      const pid_t exits = fork();
      if (exits == 0) {
        me.transport.Shutdown(absl::InternalError("said by a child"));
        std::exit(0);
      }
      for (const pid_t child : {returns, exits}) {
        int status = 0;
        waitpid(child, &status, 0);
        EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
      }
    }
    const Rank peer = 1 - me.rank;
    const std::string out = Payload(1 << 20, static_cast<unsigned>(me.rank));
    std::string in(out.size(), '?');
    Op sent, received;
    me.Recv(peer, 1, &in, &received);
    me.Send(peer, 1, out, &sent);
    me.Await({&sent, &received});
    EXPECT_TRUE(in == Payload(in.size(), static_cast<unsigned>(peer)));
    EXPECT_TRUE(me.FirstLoss().ok()) << me.FirstLoss();
    me.transport.Shutdown(absl::OkStatus());
  });
  EXPECT_TRUE(ranks.EndsWell(0));
  EXPECT_TRUE(ranks.EndsWell(1));
}

TEST_P(UcxProcessDeathTest, ARankHasEndedWhenItShutsDownThoughAForkedChildLivesOn) {
  if (!GetParam().maps_peers) GTEST_SKIP() << "of ranks of other nodes this is not known";
  ForkedRanks ranks(2, GetParam(), [](Child& me) {
    if (me.rank == 1) {
      const pid_t child = fork();
      if (child == 0) {
        while (true) pause();
      }
      me.transport.Shutdown(absl::OkStatus());
      me.orders.Read();  // until rank 0 has noticed
      kill(child, SIGKILL);
      waitpid(child, nullptr, 0);
      return;
    }
    me.CheckUntil([&] { return me.transport.HasEnded(1); });
    me.reports.Write(me.transport.HasEnded(1) ? "noticed" : "not noticed");
    EXPECT_TRUE(me.FirstLoss().ok()) << me.FirstLoss();
    me.transport.Shutdown(absl::OkStatus());
  });
  EXPECT_EQ(ranks.Report(0), "noticed");
  ranks.Order(1);
  EXPECT_TRUE(ranks.EndsWell(0));
  EXPECT_TRUE(ranks.EndsWell(1));
}

std::vector<int> InheritedByHelpers() {
  std::vector<int> inherited = OpenDescriptors();
  std::erase_if(inherited, [](int fd) { return (fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0; });
  return inherited;
}

TEST_P(UcxProcessDeathTest, NoDescriptorOfATransportIsInherited) {
  const std::vector<int> before = InheritedByHelpers();
  ForkedRanks ranks(3, GetParam(), [&](Child& me) {
    std::deque<Op> ops(6);
    std::vector<std::string> in(3, std::string(100'000, '?'));
    const std::string out = Payload(100'000, 1);
    for (Rank peer = 0; peer < 3; ++peer) {
      me.Recv(peer, 1, &in[static_cast<std::size_t>(peer)], &ops[static_cast<std::size_t>(peer)]);
      me.Send(peer, 1, out, &ops[static_cast<std::size_t>(3 + peer)]);
    }
    me.DriveUntil([&] { return std::all_of(ops.begin(), ops.end(), [](const Op& op) { return op.calls > 0; }); });
    EXPECT_GT(OpenDescriptors().size(), before.size() + 10);
    EXPECT_EQ(InheritedByHelpers(), before);
    me.transport.Shutdown(absl::OkStatus());
  });
  for (Rank rank = 0; rank < 3; ++rank) EXPECT_TRUE(ranks.EndsWell(rank));
}

std::vector<std::unique_ptr<Transport>> MakeWithNode(const std::string& node, int size,
                                                     const TransportOptions& options) {
  std::vector<std::unique_ptr<Transport>> transports;
  for (int i = 0; i < size; ++i) {
    transports.push_back(MakeUcxTransport({.interface = "lo", .node = node}, options).value());
  }
  return transports;
}

constexpr std::size_t kInManyReads = 64 << 20;

TEST(UcxProcessMemoryReadDeathTest, ARankThatIsKilledWhileItsMessageIsReadIsNamed) {
  const TransportMaker maker = {"one_node", true,
                                [](int n, const TransportOptions& o) { return MakeWithNode("", n, o); }};
  ForkedRanks ranks(2, maker, [](Child& me) {
    Op op, sign;
    if (me.rank == 0) {
      const std::string out = Payload(kInManyReads, 1);
      me.Send(1, 1, out, &op);
      me.Send(1, 2, "x", &sign);
      ServeForEver(me);
    }
    std::string word(1, '\0'), in(kInManyReads, '\0');
    me.Recv(0, 2, &word, &sign);
    me.Await({&sign});
    me.Recv(0, 1, &in, &op);
    me.transport.Progress();  // reads a part
    EXPECT_EQ(op.calls, 0);
    EXPECT_EQ(in.substr(0, 4096), Payload(4096, 1));
    me.reports.Write("reading");
    me.orders.Read();
    me.Await({&op});
    EXPECT_THAT(op.status.ToString(), HasSubstr("UNAVAILABLE: rank 0 died"));
    me.transport.Shutdown(absl::OkStatus());
  });
  EXPECT_EQ(ranks.Report(1), "reading");
  ranks.Kill(0, SIGKILL);
  EXPECT_FALSE(ranks.EndsWell(0));  // has ended
  ranks.Order(1);
  EXPECT_TRUE(ranks.EndsWell(1));
}

// As in a container whose ranks lack the right: UCX carries the messages.
TEST(UcxProcessMemoryReadDeathTest, RanksThatMayNotReadEachOthersMemorySendAllTheSame) {
  const TransportMaker maker = {"one_node", true, [](int n, const TransportOptions& o) {
                                  constexpr uid_t kNobody = 65534;
                                  if (geteuid() == 0) {
                                    EXPECT_EQ(setresuid(kNobody, kNobody, kNobody), 0);
                                  }
                                  EXPECT_EQ(prctl(PR_SET_DUMPABLE, 0), 0);
                                  return MakeWithNode("", n, o);
                                }};
  ForkedRanks ranks(2, maker, [](Child& me) {
    const Rank peer = 1 - me.rank;
    for (const std::size_t bytes : {std::size_t{100}, std::size_t{40'000}, (std::size_t{4} << 20) + 3}) {
      const std::string out = Payload(bytes, static_cast<unsigned>(me.rank));
      EXPECT_TRUE(me.Exchange(peer, 1, out) == Payload(out.size(), static_cast<unsigned>(peer)));
    }
    me.transport.Shutdown(absl::OkStatus());
  });
  EXPECT_TRUE(ranks.EndsWell(0));
  EXPECT_TRUE(ranks.EndsWell(1));
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
