// Ranks on nodes of their own, as processes that are killed and stopped in the middle of messages that go over wires.
// The suite's name ends in DeathTest so that GoogleTest runs it first: see ucx_process_test.cc.
#include <algorithm>
#include <deque>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "tests/transports/forked_ranks.h"
#include "tests/transports/payload.h"

namespace tutti {
namespace {

using testing::HasSubstr;

constexpr std::size_t kVeryLong = 32 << 20;

class UcxWiredProcessDeathTest : public testing::TestWithParam<int> {};  // by the number of connections
INSTANTIATE_TEST_SUITE_P(, UcxWiredProcessDeathTest, testing::Values(1, 3));

TransportMaker Nodes(int connections) {
  return {"nodes", /*maps_peers=*/false, [connections](int, const TransportOptions& options) {
            std::vector<std::unique_ptr<Transport>> transports;
            const std::string node = absl::StrCat("node", getpid());
            const UcxOptions ucx = {.interface = "lo", .node = node, .connections = connections};
            transports.push_back(MakeUcxTransport(ucx, options).value());
            return transports;
          }};
}

// Very long messages both ways between this rank and `peer`, of which some has arrived.
struct UnderWay {
  UnderWay(RankDriver& me, Rank peer) {
    me.Send(peer, 1, out, &ops[0]);
    me.Recv(peer, 1, &in, &ops[1]);
    me.DriveUntil([&] { return in[1'000'000] != '?'; });
  }
  bool ended() const { return ops[0].calls > 0 && ops[1].calls > 0; }

  const std::string out = std::string(kVeryLong, 's');
  std::string in = std::string(kVeryLong, '?');
  std::deque<Op> ops{2};
};

void Exchange(RankDriver& me, Rank peer) {
  const std::string out = Payload(1'000'000, static_cast<unsigned>(me.rank));
  std::string in(out.size(), '?');
  Op sent, received;
  me.Send(peer, 7, out, &sent);
  me.Recv(peer, 7, &in, &received);
  me.CheckUntil([&] { return sent.calls > 0 && received.calls > 0; });
  EXPECT_TRUE(sent.status.ok() && received.status.ok()) << sent.status << received.status;
  EXPECT_TRUE(in == Payload(in.size(), static_cast<unsigned>(peer)));
}

// Rank 2 is killed, or stopped and given up, in the middle of messages with the ranks 0 and 1, which go on.
void LoseInTheMiddle(int connections, int signal, const absl::Status& given_up, const std::string& expected) {
  ForkedRanks ranks(3, Nodes(connections), [&](Child& me) {
    if (me.rank == 2) {
      std::deque<Op> ops(4);
      const std::string out(kVeryLong, 's');
      std::deque<std::string> in(2, std::string(kVeryLong, '?'));
      for (const Rank peer : {0, 1}) {
        const auto i = static_cast<std::size_t>(peer);
        me.Send(peer, 1, out, &ops[2 * i]);
        me.Recv(peer, 1, &in[i], &ops[2 * i + 1]);
      }
      me.DriveUntil([&] { return in[0][1'000'000] != '?' && in[1][1'000'000] != '?'; });
      me.reports.Write("ready");
      pause();
    }
    UnderWay messages(me, 2);
    me.reports.Write("ready");
    me.orders.Read();
    if (!given_up.ok()) me.transport.Disconnect(2, given_up);
    me.CheckUntil([&] { return messages.ended(); });
    for (const Op& op : messages.ops) EXPECT_THAT(op.status.ToString(), HasSubstr(expected));
    std::fill(messages.in.begin(), messages.in.end(), 'p');
    Exchange(me, 1 - me.rank);
    me.reports.Write("gone on");
    me.orders.Read();
    Exchange(me, 1 - me.rank);
    EXPECT_EQ(messages.in.find_first_not_of('p'), std::string::npos);
    EXPECT_EQ(messages.ops[0].calls + messages.ops[1].calls, 2);
    me.transport.Shutdown(absl::OkStatus());
    EXPECT_EQ(messages.in.find_first_not_of('p'), std::string::npos);
  });
  for (Rank rank = 0; rank < 3; ++rank) EXPECT_EQ(ranks.Report(rank), "ready");
  ranks.Kill(2, signal);
  for (Rank rank = 0; rank < 2; ++rank) ranks.Order(rank);
  for (Rank rank = 0; rank < 2; ++rank) EXPECT_EQ(ranks.Report(rank), "gone on");
  for (Rank rank = 0; rank < 2; ++rank) ranks.Order(rank);
  for (Rank rank = 0; rank < 2; ++rank) EXPECT_TRUE(ranks.EndsWell(rank));
}

TEST_P(UcxWiredProcessDeathTest, ARankThatIsKilledInTheMiddleIsNamed) {
  LoseInTheMiddle(GetParam(), SIGKILL, absl::OkStatus(), "UNAVAILABLE: rank 2 died");
}

TEST_P(UcxWiredProcessDeathTest, ARankThatIsStoppedInTheMiddleCanBeGivenUp) {
  const absl::Status cause = absl::DeadlineExceededError("rank 2 takes nothing");
  LoseInTheMiddle(GetParam(), SIGSTOP, cause, cause.ToString());
}

// A forked child holds descriptors of its parent's connections; neither its end nor its life is of any consequence.
TEST_P(UcxWiredProcessDeathTest, AChildThatIsForkedInTheMiddleTouchesNoMessage) {
  ForkedRanks ranks(2, Nodes(GetParam()), [](Child& me) {
    UnderWay messages(me, 1 - me.rank);
    pid_t lives = 0;
    if (me.rank == 0) {
      lives = fork();
      while (lives == 0) pause();
      const pid_t ends = fork();
      if (ends == 0) {
        me.transport.Shutdown(absl::InternalError("said by a child"));
        _exit(messages.ops[0].calls + messages.ops[1].calls);
      }
      int status = 0;
      waitpid(ends, &status, 0);
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    }
    me.CheckUntil([&] { return messages.ended(); });
    EXPECT_TRUE(messages.in == messages.out);
    Exchange(me, 1 - me.rank);
    EXPECT_TRUE(me.FirstLoss().ok()) << me.FirstLoss();
    me.transport.Shutdown(absl::OkStatus());
    if (me.rank == 0) {
      kill(lives, SIGKILL);
      waitpid(lives, nullptr, 0);
    }
  });
  EXPECT_TRUE(ranks.EndsWell(0));
  EXPECT_TRUE(ranks.EndsWell(1));
}

}  // namespace
}  // namespace tutti
