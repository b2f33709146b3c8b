// What each fault does to messages, one at a time.
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "tests/harness/stopped_clock.h"
#include "tests/transports/conformance.h"
#include "tests/transports/payload.h"
#include "tutti/faulty_transport.h"

namespace tutti {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// Ranks over inproc, all driven by the thread of the test. The destructor ends the operations that are under way, so an
// Op must be made before the FaultyWorld.
class FaultyWorld {
 public:
  FaultyWorld(int size, const FaultPlan& plan) {
    const std::shared_ptr<InprocHub> hub = MakeInprocHub(size);
    std::vector<std::string> addresses;
    for (Rank rank = 0; rank < size; ++rank) {
      FaultPlan own = plan;
      own.on_fault = [this](const FaultEvent& event) { events.push_back(event); };
      transports_.push_back(
          MakeFaultyTransport(MakeInprocTransport(hub, {.region_bytes = 4096}).value(), std::move(own)).value());
      addresses.push_back(*transports_.back()->Address());
    }
    for (Rank rank = 0; rank < size; ++rank) {
      connected.push_back(transports_[rank]->Connect(rank, addresses, absl::InfiniteFuture()));
    }
  }

  Transport& operator[](Rank rank) { return *transports_[rank]; }
  void Send(Rank from, Rank to, std::uint64_t tag, const std::string& data, Op* op) {
    transports_[from]->endpoint(to).Send(tag, data.data(), static_cast<std::int64_t>(data.size()), op);
  }
  void Recv(Rank from, Rank to, std::uint64_t tag, std::string* data, Op* op) {
    transports_[to]->endpoint(from).Recv(tag, data->data(), static_cast<std::int64_t>(data->size()), op);
  }
  // Calls Progress of every rank once; true when anything moved.
  bool Poll() {
    bool moved = false;
    for (const auto& transport : transports_) moved |= transport->Progress();
    return moved;
  }
  // Moves all that can move without waiting.
  void Settle() {
    for (int quiet = 0; quiet < 3; ++quiet) {
      while (Poll()) quiet = 0;
    }
  }
  void Await(const Op& op) {
    const absl::Time deadline = absl::Now() + absl::Minutes(1);
    while (op.calls == 0 && absl::Now() < deadline) {
      if (!Poll()) transports_[0]->Sleep(absl::Now() + absl::Milliseconds(1));
    }
    EXPECT_EQ(op.calls, 1);
  }

  std::vector<FaultEvent> events;
  std::vector<absl::Status> connected;

 private:
  std::vector<std::unique_ptr<Transport>> transports_;
};

TEST(FaultyTransport, ADroppedMessageEndsItsSendAndNoRecv) {
  Op sent[3], received[3];
  FaultyWorld world(2, {.faults = {{.kind = FaultKind::kDrop, .from = 0, .to = 1, .first = 1, .last = 1}}});
  std::string in[3] = {"?", "?", "?"};
  const std::string out[3] = {"a", "b", "c"};
  for (int i = 0; i < 3; ++i) {
    world.Recv(0, 1, i, &in[i], &received[i]);
    world.Send(0, 1, i, out[i], &sent[i]);
    EXPECT_EQ(sent[i].calls, 0) << "ended inline";
  }
  world.Settle();
  EXPECT_THAT(in, ElementsAre("a", "?", "c"));
  for (const Op& op : sent) EXPECT_TRUE(op.calls == 1 && op.status.ok()) << op.status;
  EXPECT_EQ(received[1].calls, 0);
  EXPECT_THAT(world.events, ElementsAre(FaultEvent{FaultKind::kDrop, 0, 1, 1}));
  world[1].Shutdown(absl::OkStatus());
  EXPECT_EQ(received[1].status.code(), absl::StatusCode::kUnavailable);
}

TEST(FaultyTransport, AHalfOpenLinkStaysDeadInOneDirection) {
  Op sent[5], received[5], back[5], answered[5];
  FaultyWorld world(2, {.faults = {{.kind = FaultKind::kHalfOpen, .from = 0, .to = 1, .first = 2, .last = 2}}});
  std::string in(1, '?');
  const std::string out = "x";
  for (int i = 0; i < 5; ++i) {
    world.Recv(0, 1, i, &in, &received[i]);
    world.Send(0, 1, i, out, &sent[i]);
    world.Recv(1, 0, i, &in, &answered[i]);
    world.Send(1, 0, i, out, &back[i]);
  }
  world.Settle();
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(received[i].calls, i < 2 ? 1 : 0) << i;
    EXPECT_TRUE(sent[i].calls == 1 && back[i].calls == 1 && answered[i].calls == 1) << i;
  }
}

TEST(FaultyTransport, ADelayedMessageIsOvertakenAndArrives) {
  Op sent[2], received[2];
  FaultyWorld world(2,
                    {.faults = {{.kind = FaultKind::kDelay, .first = 0, .last = 0, .delay = absl::Milliseconds(20)}}});
  std::string in[2] = {"?", "?"};
  const std::string out[2] = {"a", "b"};
  for (int i = 0; i < 2; ++i) {
    world.Recv(0, 1, i, &in[i], &received[i]);
    world.Send(0, 1, i, out[i], &sent[i]);
  }
  world.Await(received[1]);
  world.Await(sent[0]);
  EXPECT_THAT(in, ElementsAre("a", "b"));
  EXPECT_THAT(world.events, ElementsAre(FaultEvent{FaultKind::kDelay, 0, 1, 0}));
}

TEST(FaultyTransport, ADelayIsAsLongAsThePlanSaysThoughTheSystemsClockStandsStill) {
  const StoppedClock stopped;
  Op sent, received;
  FaultyWorld world(2, {.faults = {{.kind = FaultKind::kDelay, .delay = absl::Milliseconds(5)}}});
  std::string in = "?";
  const std::string out = "a";
  world.Recv(0, 1, 0, &in, &received);
  world.Send(0, 1, 0, out, &sent);
  world.Await(received);
  EXPECT_EQ(in, "a");
}

TEST(FaultyTransport, AReorderedMessageLeavesAfterTheNext) {
  Op sent[2];
  FaultyWorld world(2, {.faults = {{.kind = FaultKind::kReorder, .first = 0, .last = 0, .delay = absl::Hours(1)}}});
  std::vector<int> order;
  struct Note : Op {
    std::vector<int>* order;
    int number;
  };
  Note received[2];
  std::string in[2] = {"?", "?"};
  const std::string out[2] = {"a", "b"};
  for (int i = 0; i < 2; ++i) {
    received[i].order = &order;
    received[i].number = i;
    received[i].done = [](Completion* self, const absl::Status& status) {
      auto* note = static_cast<Note*>(self);
      note->status = status;
      note->order->push_back(note->number);
    };
    world.Recv(0, 1, i, &in[i], &received[i]);
  }
  world.Send(0, 1, 0, out[0], &sent[0]);
  world.Settle();
  EXPECT_THAT(order, ElementsAre());
  world.Send(0, 1, 1, out[1], &sent[1]);
  world.Settle();
  EXPECT_THAT(order, ElementsAre(1, 0));
  EXPECT_THAT(in, ElementsAre("a", "b"));
}

TEST(FaultyTransport, ASlowLinkTakesItsTimeAndKeepsTheOrder) {
  // 3 messages of 1000 bytes at 100 KB/s: the last leaves after 30 ms and arrives 5 ms later.
  Op sent[3], received[3];
  FaultyWorld world(2,
                    {.faults = {{.kind = FaultKind::kSlow, .delay = absl::Milliseconds(5), .bytes_per_second = 1e5}}});
  const absl::Time start = absl::Now();
  const std::string out(1000, 'x');
  std::string in(1000, '?');
  for (int i = 0; i < 3; ++i) {
    world.Recv(0, 1, i, &in, &received[i]);
    world.Send(0, 1, i, out, &sent[i]);
  }
  for (int i = 2; i >= 0; --i) world.Await(received[i]);
  EXPECT_GE(absl::Now() - start, absl::Milliseconds(35));
  for (const Op& op : sent) EXPECT_TRUE(op.status.ok());
}

TEST(FaultyTransport, ACopyMeetsNoLaterReceiveOfItsTag) {
  FaultyWorld world(2, {.faults = {{.kind = FaultKind::kDuplicate}}});
  for (int use = 0; use < 20; ++use) {
    const std::string out = "message " + std::to_string(use % 10);
    std::string in(out.size(), '?');
    Op sent, received;
    world.Send(0, 1, 7, out, &sent);
    world.Recv(0, 1, 7, &in, &received);
    world.Settle();
    EXPECT_TRUE(sent.calls == 1 && sent.status.ok()) << sent.status;
    EXPECT_TRUE(received.calls == 1 && received.status.ok()) << received.status;
    EXPECT_EQ(in, out);
  }
  EXPECT_EQ(world.events.size(), 20u);
}

TEST(FaultyTransport, ACorruptedMessageDiffersInOneBitAndItsSenderKeepsItsOwn) {
  Op sent, received, sent_none, received_none;
  FaultyWorld world(2, {.seed = 4, .faults = {{.kind = FaultKind::kCorrupt}}});
  const std::string out = Payload(100, 1);
  std::string in(100, '?'), none;
  world.Send(0, 1, 1, out, &sent);
  world.Recv(0, 1, 1, &in, &received);
  world.Send(0, 1, 2, none, &sent_none);
  world.Recv(0, 1, 2, &none, &received_none);
  world.Settle();
  EXPECT_TRUE(received.calls == 1 && received.status.ok()) << received.status;
  EXPECT_TRUE(received_none.calls == 1 && received_none.status.ok()) << received_none.status;
  int flipped = 0;
  for (std::size_t i = 0; i < out.size(); ++i)
    flipped += __builtin_popcount(static_cast<unsigned char>(in[i] ^ out[i]));
  EXPECT_EQ(flipped, 1);
  EXPECT_EQ(out, Payload(100, 1));
  EXPECT_THAT(world.events, ElementsAre(FaultEvent{FaultKind::kCorrupt, 0, 1, 0}));
}

TEST(FaultyTransport, ATruncatedMessageNamesBothLengths) {
  Op sent, received;
  FaultyWorld world(2, {.faults = {{.kind = FaultKind::kTruncate}}});
  const std::string out = Payload(100, 1);
  std::string in(100, '?');
  world.Send(0, 1, 1, out, &sent);
  world.Recv(0, 1, 1, &in, &received);
  world.Settle();
  EXPECT_TRUE(sent.calls == 1 && sent.status.ok()) << sent.status;
  EXPECT_EQ(received.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(received.status.message()),
              testing::ContainsRegex("message from rank 0 holds [0-9][0-9]? bytes; the receive expects 100"));
}

TEST(FaultyTransport, AKilledRankIsNamedByItsPeersAndEndsItsOwn) {
  Op first, second, third, late, waits, held;
  FaultyWorld world(3, {.faults = {{.kind = FaultKind::kKill, .from = 1, .first = 2, .last = 2}}});
  const std::string out = "x";
  std::string in(1, '?');
  world.Recv(1, 0, 9, &in, &waits);
  world.Recv(2, 1, 1, &in, &first);
  world.Send(1, 2, 1, out, &second);
  world.Settle();
  EXPECT_TRUE(world[0].Check().empty());
  world.Send(1, 0, 9, out, &third);  // message 2 of rank 1
  world.Recv(0, 1, 1, &in, &late);
  EXPECT_EQ(third.calls + late.calls + first.calls, 0);
  world.Settle();
  for (const Op* op : {&first, &second, &third, &late}) {
    EXPECT_EQ(op->calls, 1);
    EXPECT_EQ(op->status,
              absl::UnavailableError("rank 1 died: the fault plan killed the rank before message 2 of the rank"));
  }
  for (const Rank peer : {0, 2}) {
    ASSERT_EQ(world[peer].Check().size(), 1u);
    const Loss loss = world[peer].Check()[0];
    EXPECT_EQ(loss.peer, 1);
    EXPECT_EQ(loss.cause.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(loss.cause.message(), HasSubstr("rank 1 died"));
  }
  world.Send(1, 0, 3, out, &held);
  EXPECT_EQ(held.calls, 0);
  world.Settle();
  EXPECT_EQ(held.status, third.status);
  world[1].Shutdown(absl::OkStatus());
  EXPECT_THAT(world.events, ElementsAre(FaultEvent{FaultKind::kKill, 1, kEveryRank, 2}));
}

TEST(FaultyTransport, ARankCanDieWhenItIsConnected) {
  FaultyWorld world(2, {.faults = {{.kind = FaultKind::kKill, .from = 1, .first = kAtConnect, .last = kAtConnect}}});
  EXPECT_TRUE(world.connected[0].ok());
  EXPECT_EQ(world.connected[1],
            absl::UnavailableError("rank 1 died: the fault plan killed the rank when the rank was connected"));
  ASSERT_EQ(world[0].Check().size(), 1u);
  EXPECT_EQ(world[0].Check()[0].cause.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(world[0].Check()[0].cause.message(), HasSubstr("rank 1 died"));
}

TEST(FaultyTransport, DisconnectEndsWhatHasNotLeft) {
  const FaultPlan plan = {.faults = {{.kind = FaultKind::kDelay, .delay = absl::Hours(10)},
                                     {.kind = FaultKind::kDrop, .first = 1, .last = 9}}};
  Op delayed, lost, late, other;
  FaultyWorld world(3, plan);
  const std::string out = "x";
  world.Send(0, 1, 1, out, &delayed);
  world.Send(0, 2, 1, out, &other);
  world.Send(0, 1, 2, out, &lost);
  world[0].Disconnect(1, absl::InternalError("no luck"));
  world.Send(0, 1, 3, out, &late);
  EXPECT_EQ(delayed.calls + lost.calls + late.calls, 0);
  world.Settle();
  for (const Op* op : {&delayed, &late}) EXPECT_TRUE(op->calls == 1 && op->status == absl::InternalError("no luck"));
  EXPECT_TRUE(lost.calls == 1 && lost.status.ok()) << lost.status;
  EXPECT_EQ(other.calls, 0);
  world[0].Shutdown(absl::OkStatus());
  EXPECT_EQ(other.calls, 1);
}

TEST(FaultyTransport, ShutdownEndsWhatHasNotLeft) {
  const FaultPlan plan = {.faults = {{.kind = FaultKind::kDelay, .delay = absl::Hours(10)}}};
  for (const absl::Status& cause : {absl::OkStatus(), absl::InternalError("no luck")}) {
    Op sent;
    FaultyWorld world(2, plan);
    const std::string out = "x";
    world.Send(0, 1, 1, out, &sent);
    world.Settle();
    EXPECT_EQ(sent.calls, 0);
    world[0].Shutdown(cause);
    EXPECT_EQ(sent.calls, 1);
    EXPECT_EQ(sent.status,
              cause.ok() ? absl::UnavailableError("rank 0 has shut its transport down") : absl::Status(cause));
    world[0].Shutdown(absl::InternalError("again"));
    EXPECT_EQ(sent.calls, 1);
  }
}

TEST(FaultyTransport, SleepEndsWhenAMessageIsToLeave) {
  Op sent, received;
  FaultyWorld world(2, {.faults = {{.kind = FaultKind::kSlow, .delay = absl::Milliseconds(1)}}});
  std::string in(1, '?');
  const std::string out = "x";
  world.Recv(0, 1, 1, &in, &received);
  world.Send(0, 1, 1, out, &sent);
  while (received.calls == 0) {
    if (!world.Poll() && sent.calls == 0 && received.calls == 0) {
      world[0].Sleep(absl::InfiniteFuture());  // must end when the delayed message is due
    }
  }
  EXPECT_EQ(in, "x");
}

std::vector<FaultEvent> EventsOf(std::uint64_t seed) {
  std::vector<Op> ops(3 * 3 * 20);
  FaultyWorld world(3, {.seed = seed,
                        .faults = {{.kind = FaultKind::kDrop, .chance = 0.3},
                                   {.kind = FaultKind::kDuplicate, .chance = 0.3},
                                   {.kind = FaultKind::kTruncate, .from = 2, .chance = 0.5}}});
  const std::string out = "xyz";
  std::size_t next = 0;
  for (std::uint64_t tag = 0; tag < 20; ++tag) {
    for (Rank from = 0; from < 3; ++from) {
      for (Rank to = 0; to < 3; ++to) world.Send(from, to, tag, out, &ops[next++]);
    }
  }
  world.Settle();
  for (Rank rank = 0; rank < 3; ++rank) world[rank].Shutdown(absl::OkStatus());
  for (const Op& op : ops) EXPECT_EQ(op.calls, 1);
  return world.events;
}

TEST(FaultyTransport, FaultsDependOnTheSeedAlone) {
  const std::vector<FaultEvent> events = EventsOf(1);
  EXPECT_EQ(events, EventsOf(1));
  EXPECT_NE(events, EventsOf(2));
  int dropped = 0;
  for (const FaultEvent& event : events) {
    EXPECT_NE(event.from, event.to) << "a message to itself crosses no wire";
    dropped += event.kind == FaultKind::kDrop ? 1 : 0;
  }
  EXPECT_NEAR(dropped, 120 * 0.3, 20);
}

TEST(FaultyTransport, SaysWhichFieldOfAPlanIsWrong) {
  const auto error_of = [](const Fault& fault) {
    return std::string(MakeFaultyTransport(MakeInprocTransport(MakeInprocHub(1), {.region_bytes = 4096}).value(),
                                           {.faults = {{.kind = FaultKind::kDrop}, fault}})
                           .status()
                           .message());
  };
  EXPECT_EQ(error_of({.chance = 1.5}), "FaultPlan.faults[1].chance is 1.5; expected a probability from 0 to 1");
  EXPECT_THAT(error_of({.from = -2}), HasSubstr("faults[1].from is -2"));
  EXPECT_THAT(error_of({.to = -7}), HasSubstr("faults[1].to is -7"));
  EXPECT_THAT(error_of({.first = kAtConnect}), HasSubstr("faults[1].first is -1"));
  EXPECT_THAT(error_of({.first = 3, .last = 2}),
              AllOf(HasSubstr("faults[1].last is 2"), HasSubstr("at least first, 3")));
  EXPECT_THAT(error_of({.kind = FaultKind::kKill, .to = 1}), HasSubstr("faults[1].to is 1"));
  EXPECT_THAT(error_of({.kind = FaultKind::kDelay}), HasSubstr("faults[1].delay is 0"));
  EXPECT_THAT(error_of({.kind = FaultKind::kDelay, .delay = absl::InfiniteDuration()}), HasSubstr("delay is inf"));
  EXPECT_THAT(error_of({.kind = FaultKind::kSlow}), HasSubstr("faults[1].bytes_per_second is 0"));
  EXPECT_THAT(error_of({.kind = FaultKind::kSlow, .bytes_per_second = -1}), HasSubstr("bytes_per_second is -1"));
  EXPECT_EQ(MakeFaultyTransport(nullptr, {}).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tutti
