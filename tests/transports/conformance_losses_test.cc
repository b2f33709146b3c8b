// Peers that are lost or leave, and groups that fail, on every transport.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "tests/transports/conformance.h"
#include "tests/transports/payload.h"

namespace tutti {
namespace {

using testing::HasSubstr;

TEST_P(TransportConformance, ShutdownEndsWhatIsPendingWithItsCauseOnce) {
  RunRanks(3, [&](RankDriver& me) {
    const std::string out = Payload(kLongerThanBuffers, 1);
    std::string in(100, '?');
    Op sent, received;
    me.Recv((me.rank + 1) % 3, 1, &in, &received);  // a message that nobody sends
    me.Send((me.rank + 1) % 3, 2, out, &sent);      // a message that nobody receives
    if (me.rank == 2) {
      me.transport.Shutdown(absl::InternalError("rank 2 ran out of luck"));
      EXPECT_EQ(received.status, absl::InternalError("rank 2 ran out of luck"));
      EXPECT_EQ(sent.status, absl::InternalError("rank 2 ran out of luck"));
      // The others may have aborted in turn.
      for (const Loss& loss : me.transport.Check()) EXPECT_NE(loss.peer, 2);
    } else {
      const absl::Status told = me.AwaitError();
      EXPECT_EQ(told, absl::InternalError("rank 2 ran out of luck (told by rank 2)"));
      me.transport.Shutdown(told);
      EXPECT_EQ(received.status, told);
    }
    EXPECT_EQ(received.calls, 1);
    EXPECT_EQ(sent.calls, 1);
    EXPECT_FALSE(sent.status.ok());
    me.transport.Shutdown(absl::OkStatus());
    Op late;
    me.transport.endpoint(0).Recv(3, nullptr, 0, &late);
    EXPECT_EQ(late.calls, 0);
    me.Await({&late});
    EXPECT_EQ(late.status, received.status);
    EXPECT_EQ(received.calls + sent.calls, 2);
  });
}

TEST_P(TransportConformance, ACauseThatIsPassedOnKeepsItsTeller) {
  RunRanks(3, [&](RankDriver& me) {
    if (me.rank == 0) return me.transport.Shutdown(absl::DataLossError("flipped bit (told by rank 7)"));
    EXPECT_EQ(me.AwaitError(), absl::DataLossError("flipped bit (told by rank 7)"));
  });
}

// Ops that are posted together.
struct Ops : std::deque<Op> {
  using std::deque<Op>::deque;
  bool all_ended() const {
    return absl::c_all_of(*this, [](const Op& op) { return op.calls > 0; });
  }
  void ExpectEach(const absl::Status& status) const {
    for (const Op& op : *this) EXPECT_TRUE(op.calls == 1 && op.status == status) << op.status << ", not " << status;
  }
};

// An exchange of a small and a large message with a peer.
void ExchangeWith(RankDriver& me, Rank peer, std::uint64_t tag) {
  Ops ops(4);
  const std::vector<std::string> out = {Payload(100, static_cast<unsigned>(me.rank)),
                                        Payload(2'000'000, static_cast<unsigned>(me.rank))};
  std::vector<std::string> in = {std::string(out[0].size(), '?'), std::string(out[1].size(), '?')};
  for (std::size_t i = 0; i < 2; ++i) {
    me.Recv(peer, tag + i, &in[i], &ops[i]);
    me.Send(peer, tag + i, out[i], &ops[2 + i]);
  }
  me.CheckUntil([&] { return ops.all_ended(); });
  ops.ExpectEach(absl::OkStatus());
  for (std::size_t i = 0; i < 2; ++i) EXPECT_TRUE(in[i] == Payload(in[i].size(), static_cast<unsigned>(peer)));
}

TEST_P(TransportConformance, APeerThatAbortsIsLostAlone) {
  const absl::Status told = absl::InternalError("rank 2 has had enough (told by rank 2)");
  std::atomic<int> ready = 0;
  RunRanks(3, [&](RankDriver& me) {
    if (me.rank == 2) {
      me.DriveUntil([&] { return ready == 2; });
      return me.transport.Shutdown(absl::InternalError("rank 2 has had enough"));
    }
    const std::string large = Payload(kLongerThanBuffers, 1);
    std::string in(100, '?');
    Ops lost(2), late(2);
    me.Recv(2, 1, &in, &lost[0]);
    me.Send(2, 2, large, &lost[1]);  // a message that nobody receives
    ++ready;
    me.WakeAll();
    me.CheckUntil([&] { return lost.all_ended(); });
    lost.ExpectEach(told);
    ASSERT_EQ(me.transport.Check().size(), 1u);
    EXPECT_EQ(me.transport.Check()[0].peer, 2);
    EXPECT_EQ(me.transport.Check()[0].cause, told);
    me.Recv(2, 3, &in, &late[0]);
    me.Send(2, 4, large, &late[1]);
    EXPECT_EQ(late[0].calls + late[1].calls, 0);
    me.CheckUntil([&] { return late.all_ended(); });
    late.ExpectEach(told);
    ExchangeWith(me, 1 - me.rank, 5);
    EXPECT_EQ(me.transport.Check().size(), 1u);
  });
}

TEST_P(TransportConformance, DisconnectEndsWhatIsUnderWayWithThatPeerAlone) {
  const absl::Status cause = absl::DeadlineExceededError("rank 2 takes nothing");
  std::atomic<int> step = 0;
  RunRanks(3, [&](RankDriver& me) {
    const auto advance = [&] {
      ++step;
      me.WakeAll();
    };
    const std::string small = Payload(100, 1), large = Payload(kLongerThanBuffers, 2);
    if (me.rank == 2) {
      Ops sent(2);  // nobody receives these
      me.Send(0, 7, small, &sent[0]);
      me.Send(0, 8, large, &sent[1]);
      me.transport.Drain();
      advance();
      me.CheckUntil([&] { return step >= 3; });
      me.transport.Shutdown(absl::OkStatus());
      EXPECT_TRUE(sent.all_ended());
      return;
    }
    if (me.rank == 0) {
      me.CheckUntil([&] { return step == 1; });
      Ops ended(6), late(2);
      std::string in(100, '?');
      me.Recv(2, 1, &in, &ended[0]);
      me.Recv(2, 2, &in, &ended[1]);
      me.Send(2, 3, large, &ended[2]);  // a message that nobody receives
      me.Send(2, 4, large, &ended[3]);
      me.Recv(2, 5, &in, &ended[4]);
      me.Send(2, 6, large, &ended[5]);
      me.transport.Progress();
      me.transport.Disconnect(2, cause);
      for (const Op& op : ended) EXPECT_EQ(op.calls, 0);
      me.CheckUntil([&] { return ended.all_ended(); });
      ended.ExpectEach(cause);
      me.transport.Disconnect(2, absl::InternalError("too late"));
      ASSERT_EQ(me.transport.Check().size(), 1u);
      EXPECT_EQ(me.transport.Check()[0].peer, 2);
      EXPECT_EQ(me.transport.Check()[0].cause, cause);
      me.Recv(2, 7, &in, &late[0]);
      me.Send(2, 4, small, &late[1]);
      EXPECT_EQ(late[0].calls + late[1].calls, 0);
      me.CheckUntil([&] { return late.all_ended(); });
      late.ExpectEach(cause);
      me.transport.Tell(2, 1, cause);  // nobody hears this note: rank 2 is lost
    } else {
      me.CheckUntil([&] { return step >= 1; });
    }
    ExchangeWith(me, 1 - me.rank, 10);
    advance();
    me.CheckUntil([&] { return step == 3; });
  });
}

constexpr std::uint64_t TagInGroup(std::uint32_t group, std::uint64_t number) {
  return (std::uint64_t{group} << kGroupShift) | number;
}

TEST_P(TransportConformance, DiscardEndsReceivesAndThrowsMessagesAway) {
  constexpr std::uint32_t kGroup = 0x5A5A5;
  constexpr std::uint32_t kOther = 0x5A5A4;
  constexpr std::size_t kSmall = 300;  // more messages than one sweep throws away
  std::atomic<int> step = 0;
  RunRanks(3, [&](RankDriver& me) {
    const auto advance_to = [&](int s) {
      step = s;
      me.WakeAll();
    };
    const auto await = [&](int s) { me.CheckUntil([&, s] { return step >= s; }); };
    const std::string small = Payload(1000, 1), middle = Payload(50'000, 3), large = Payload(kLongerThanBuffers, 2);
    if (me.rank == 0) {
      Ops before(kSmall + 2), after(kSmall + 2), other(2);
      const auto send_all = [&](Ops& ops, std::uint64_t first) {
        for (std::size_t i = 0; i < kSmall; ++i) me.Send(1, TagInGroup(kGroup, first + i), small, &ops[i]);
        me.Send(1, TagInGroup(kGroup, first + kSmall), large, &ops[kSmall]);
        me.Send(1, TagInGroup(kGroup, first + kSmall + 1), middle, &ops[kSmall + 1]);
      };
      send_all(before, 0);
      me.Send(1, TagInGroup(kOther, 0), large, &other[0]);
      me.Send(1, TagInGroup(kOther, 1), small, &other[1]);
      me.transport.Drain();
      advance_to(1);
      me.CheckUntil([&] { return before.all_ended(); });
      before.ExpectEach(absl::OkStatus());
      await(2);
      send_all(after, 1000);
      me.CheckUntil([&] { return after.all_ended(); });
      after.ExpectEach(absl::OkStatus());
      advance_to(3);
      me.CheckUntil([&] { return other.all_ended(); });
      other.ExpectEach(absl::OkStatus());
    } else if (me.rank == 1) {
      Ops discarded(2), other(3);
      std::string in(100, '?'), other_small(small.size(), '?'), other_large(large.size(), '?');
      me.Recv(0, TagInGroup(kGroup, 5000), &in, &discarded[0]);  // messages that nobody sends
      me.Recv(2, TagInGroup(kGroup, 5000), &in, &discarded[1]);
      me.Recv(2, TagInGroup(kOther, 5000), &in, &other[2]);
      await(1);
      me.transport.Discard(kGroup);
      EXPECT_EQ(discarded[0].calls + discarded[1].calls, 0);
      me.CheckUntil([&] { return discarded.all_ended(); });
      for (const Op& op : discarded) {
        EXPECT_EQ(op.status.code(), absl::StatusCode::kCancelled);
        EXPECT_THAT(op.status.message(), HasSubstr(std::to_string(kGroup)));
      }
      me.transport.Discard(kGroup);
      advance_to(2);
      await(3);
      me.Recv(0, TagInGroup(kOther, 0), &other_large, &other[0]);
      me.Recv(0, TagInGroup(kOther, 1), &other_small, &other[1]);
      advance_to(4);
      me.CheckUntil([&] { return other.all_ended(); });
      other.ExpectEach(absl::OkStatus());
      EXPECT_TRUE(other_large == large && other_small == small);
      EXPECT_TRUE(in == Payload(in.size(), 7));
      EXPECT_TRUE(me.FirstLoss().ok()) << me.FirstLoss();
    } else {
      await(4);
      Op sent;
      const std::string out = Payload(100, 7);
      me.Send(1, TagInGroup(kOther, 5000), out, &sent);
      me.CheckUntil([&] { return sent.calls > 0; });
    }
  });
}

TEST_P(TransportConformance, OldDiscardedGroupsAreForgotten) {
  RunRanks(1, [&](RankDriver& me) {
    for (std::uint32_t group = 1; group <= Transport::kMaxDiscarded + 1; ++group) me.transport.Discard(group);
    const std::string out = Payload(10, 1);
    std::string in(10, '?');
    Ops ops(3);
    me.Send(0, TagInGroup(2, 0), out, &ops[0]);
    me.CheckUntil([&] { return ops[0].calls > 0; });
    me.Send(0, TagInGroup(1, 0), out, &ops[1]);
    me.transport.Drain();
    me.Recv(0, TagInGroup(1, 0), &in, &ops[2]);
    me.CheckUntil([&] { return ops.all_ended(); });
    ops.ExpectEach(absl::OkStatus());
    EXPECT_TRUE(in == out);
  });
}

TEST_P(TransportConformance, AnAcceptedGroupIsKept) {
  RunRanks(1, [&](RankDriver& me) {
    for (const std::uint32_t group : {7u, 8u, 9u}) me.transport.Discard(group);
    me.transport.Accept(8);
    me.transport.Accept(10);  // a group that was never discarded
    const std::string out = Payload(10, 1);
    std::string in(10, '?');
    Ops ops(3);
    me.Send(0, TagInGroup(8, 0), out, &ops[0]);
    me.Send(0, TagInGroup(9, 0), out, &ops[1]);
    me.transport.Drain();
    me.Recv(0, TagInGroup(8, 0), &in, &ops[2]);
    me.CheckUntil([&] { return ops.all_ended(); });
    ops.ExpectEach(absl::OkStatus());
    EXPECT_TRUE(in == out);
  });
}

TEST_P(TransportConformance, ANoteMaySayThatThePeerHasLeftAGroup) {
  RunRanks(2, [&](RankDriver& me) {
    me.transport.Tell(1 - me.rank, 77, absl::OkStatus());
    std::optional<Note> note;
    me.CheckUntil([&] { return (note = me.transport.TakeNote()).has_value(); });
    ASSERT_TRUE(note.has_value());
    EXPECT_EQ(note->group, 77u);
    EXPECT_EQ(note->cause, absl::OkStatus());
  });
}

TEST_P(TransportConformance, NotesArriveInOrder) {
  constexpr std::uint32_t kNotes = 50;
  RunRanks(3, [&](RankDriver& me) {
    EXPECT_FALSE(me.transport.TakeNote().has_value());
    if (me.rank == 2) return;
    const Rank peer = 1 - me.rank;
    for (std::uint32_t i = 0; i < kNotes; ++i) {
      me.transport.Tell(peer, 0xFFFFFFF0u + i, absl::DataLossError("note " + std::to_string(i)));
    }
    me.transport.Tell(peer, 1, absl::AbortedError(std::string(5000, 'x')));
    for (std::uint32_t i = 0; i <= kNotes; ++i) {
      std::optional<Note> note;
      me.CheckUntil([&] { return (note = me.transport.TakeNote()).has_value(); });
      ASSERT_TRUE(note.has_value());
      EXPECT_EQ(note->from, peer);
      if (i < kNotes) {
        EXPECT_EQ(note->group, 0xFFFFFFF0u + i);
        EXPECT_EQ(note->cause, absl::DataLossError("note " + std::to_string(i)));
      } else {
        EXPECT_TRUE(absl::IsAborted(note->cause));
        EXPECT_GE(note->cause.message().size(), 512u);
      }
    }
    EXPECT_FALSE(me.transport.TakeNote().has_value());
    EXPECT_TRUE(me.FirstLoss().ok()) << me.FirstLoss();
  });
}

TEST_P(TransportConformance, AGoodbyeIsNotAFailureAndLosesNothing) {
  RunRanks(2, [&](RankDriver& me) {
    constexpr int kMessages = 20;
    std::deque<Op> ops(kMessages);
    std::vector<std::string> data(kMessages);
    const auto all_ended = [&] { return std::all_of(ops.begin(), ops.end(), [](const Op& o) { return o.calls > 0; }); };
    const auto size = [](std::size_t i) { return i * 997; };
    for (std::size_t i = 0; i < kMessages; ++i) {
      data[i] = me.rank == 0 ? Payload(size(i), 3) : std::string(size(i), '?');
      if (me.rank == 0) me.Send(1, i, data[i], &ops[i]);
      if (me.rank == 1) me.Recv(0, i, &data[i], &ops[i]);
    }
    me.DriveUntil(all_ended);
    if (me.rank == 0) return me.transport.Shutdown(absl::OkStatus());
    for (std::size_t i = 0; i < kMessages; ++i) EXPECT_TRUE(ops[i].status.ok() && data[i] == Payload(size(i), 3));
    EXPECT_TRUE(me.FirstLoss().ok()) << me.FirstLoss();
  });
}

TEST_P(TransportConformance, WhoSaysGoodbyeHasLeftOnceItsMessagesHaveCome) {
  std::atomic<int> noticed = 0;
  std::atomic<bool> may_leave = false;
  RunRanks(3, [&](RankDriver& me) {
    // Small messages, and messages so large that UCX announces them first and moves them when they are received.
    const std::vector<std::size_t> sizes = {10, 3'000'000, 70'000};
    std::deque<Op> ops(sizes.size());
    std::vector<std::string> data;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      data.push_back(me.rank == 2 ? Payload(sizes[i], 3) : std::string(sizes[i], '?'));
    }
    EXPECT_FALSE(me.transport.HasLeft(me.rank));
    if (me.rank == 2) {
      // Messages of this rank, and then its goodbye, may come to rank 0 before rank 0 has looked or posted a receive.
      me.DriveUntil([&] { return may_leave.load(); });
      for (std::size_t i = 0; i < sizes.size(); ++i) me.Send(0, i, data[i], &ops[i]);
      me.DriveUntil([&] { return ops[0].calls > 0 && ops[1].calls > 0 && ops[2].calls > 0; });
      return me.transport.Shutdown(absl::OkStatus());
    }
    Op never;
    std::string in(5, '?');
    me.Recv(2, 7, &in, &never);
    if (me.rank == 0) {
      EXPECT_FALSE(me.transport.HasLeft(2));
      may_leave = true;
      me.WakeAll();
      for (std::size_t i = 0; i < sizes.size(); ++i) me.Recv(2, i, &data[i], &ops[i]);
    }
    me.DriveUntil([&] { return me.transport.HasLeft(2); });
    EXPECT_TRUE(me.FirstLoss().ok()) << me.FirstLoss();
    EXPECT_EQ(never.calls, 0);
    me.transport.Progress();  // calls the completions of what HasLeft has found
    if (me.rank == 0) {
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        EXPECT_EQ(ops[i].calls, 1);
        EXPECT_TRUE(ops[i].status.ok() && data[i] == Payload(sizes[i], 3)) << ops[i].status;
      }
    }
    EXPECT_FALSE(me.transport.HasLeft(1 - me.rank));
    ++noticed;
    me.WakeAll();
    me.DriveUntil([&] { return noticed == 2; });
    me.transport.Shutdown(absl::InternalError("enough"));
    EXPECT_EQ(never.calls, 1);
  });
}

TEST_P(TransportConformance, WhoAsksIsToldForWhomThePeerWaits) {
  std::atomic<bool> shown = false;
  std::atomic<int> asked = 0;
  std::atomic<int> answered = 0;
  std::atomic<Rank> awaited = 17;  // outlives the transports' use of it
  RunRanks(3, [&](RankDriver& me) {
    Transport& transport = me.transport;
    if (me.rank == 2) {
      transport.ShowWaitsFor(&awaited);
      shown = true;
      // A rank that computes answers no question.
      while (asked < 2) absl::SleepFor(absl::Milliseconds(1));
      return;  // RunRanks goes on to move this rank's messages, and so to answer
    }
    EXPECT_EQ(transport.WaitsFor(2), std::nullopt);
    // Rank 2 may still be moving messages when this rank knows that all are connected, and would answer that it waits
    // for nobody.
    while (!shown) absl::SleepFor(absl::Milliseconds(1));
    transport.AskWaitsFor(2);
    transport.Drain();
    EXPECT_EQ(transport.WaitsFor(2), std::nullopt);
    ++asked;
    me.DriveUntil([&] { return transport.WaitsFor(2).has_value(); });
    EXPECT_EQ(transport.WaitsFor(2), 17);
    EXPECT_EQ(transport.WaitsFor(1 - me.rank), std::nullopt);
    ++answered;
    me.WakeAll();
    if (me.rank == 0) {
      me.DriveUntil([&] { return answered == 2; });  // rank 1 is told what rank 2 shows now
      // A rank that shows nothing waits for nobody. A new question drops the old answer.
      transport.AskWaitsFor(1);
      me.DriveUntil([&] { return transport.WaitsFor(1).has_value(); });
      EXPECT_EQ(transport.WaitsFor(1), -1);
      awaited = 1;
      transport.AskWaitsFor(2);
      EXPECT_EQ(transport.WaitsFor(2), std::nullopt);
      me.DriveUntil([&] { return transport.WaitsFor(2).has_value(); });
      EXPECT_EQ(transport.WaitsFor(2), 1);
    }
  });
}

TEST_P(TransportConformance, AQuestionToARankThatHasLeftIsHarmless) {
  RunRanks(2, [&](RankDriver& me) {
    if (me.rank == 1) return me.transport.Shutdown(absl::OkStatus());
    me.DriveUntil([&] { return me.transport.HasLeft(1); });
    me.transport.AskWaitsFor(1);
    me.transport.Progress();
    EXPECT_EQ(me.transport.WaitsFor(1), std::nullopt);
    EXPECT_TRUE(me.FirstLoss().ok()) << me.FirstLoss();
  });
}

TEST_P(TransportConformance, WhoAbortsHasNotLeft) {
  RunRanks(2, [&](RankDriver& me) {
    if (me.rank == 1) return me.transport.Shutdown(absl::InternalError("no more"));
    EXPECT_FALSE(me.AwaitError().ok());
    EXPECT_FALSE(me.transport.HasLeft(1));
  });
}

}  // namespace
}  // namespace tutti
