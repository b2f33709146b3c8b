// Messages between nodes, which go over wires (transports/ucx/wired.cc): what is particular to them.
#include <algorithm>
#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <random>
#include <thread>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "base/descriptors.h"
#include "gmock/gmock.h"
#include "tests/transports/payload.h"
#include "tests/transports/wired_world.h"

namespace tutti {
namespace {

using testing::HasSubstr;

constexpr std::size_t kVeryLong = 16 << 20;

INSTANTIATE_TEST_SUITE_P(UcxWired, TransportConformance, testing::Values(Nodes(3)), NameOfMaker);

class UcxWired : public TransportConformance {};
INSTANTIATE_TEST_SUITE_P(, UcxWired, testing::Values(Nodes(1), Nodes(3)), NameOfMaker);

// Messages of a world whose sizes and contents are known to all ranks: of a few tags, and of one tag from any rank.
struct Traffic {
  static constexpr int kRanks = 4;
  static constexpr int kTags = 4;
  static constexpr int kMessages = 8;  // of each tag from one rank to another
  static constexpr std::uint64_t kAnyTag = 77;
  static constexpr std::size_t kAnyBytes = 80'000;

  Traffic() {
    std::minstd_rand random(3);
    for (Rank from = 0; from < kRanks; ++from) {
      for (Rank to = 0; to < kRanks; ++to) {
        for (int tag = 0; tag < kTags; ++tag) {
          for (int i = 0; i < kMessages; ++i) {
            const auto most = std::array{100u, 70'000u, 70'000u, 200'000u, 200'000u, 1'500'000u}[random() % 6];
            At(from, to, tag, i) = Payload(random() % most, contents.size());
          }
        }
      }
    }
  }
  std::string& At(Rank from, Rank to, int tag, int i) { return contents[{from, to, tag, i}]; }

  std::map<std::tuple<Rank, Rank, int, int>, std::string> contents;
};

// Begins with the rank that sends it and its place among the messages of that rank.
std::string FromAny(Rank from, int i) {
  std::string data = Payload(Traffic::kAnyBytes, static_cast<std::uint64_t>(from * 1000 + i));
  data[0] = static_cast<char>(from);
  data[1] = static_cast<char>(i);
  return data;
}

TEST_P(UcxWired, AConnectThatWaitsEndsWithTheErrorOfItsWatch) {
  const std::vector<std::unique_ptr<Transport>> transports = GetParam().make(2, {});
  const std::vector<std::string> addresses = {*transports[0]->Address(), *transports[1]->Address()};
  for (const Rank rank : {0, 1}) {  // the other one does not connect
    int asked = 0;
    const auto watch = [&] { return ++asked < 3 ? absl::OkStatus() : absl::AbortedError("enough"); };
    EXPECT_EQ(transports[rank]->Connect(rank, addresses, absl::Now() + absl::Minutes(5), watch),
              absl::AbortedError("enough"));
  }
}

TEST_P(UcxWired, RandomMessagesArriveAsTheyWereAndNobodyTouchesMemoryAfterTheEnd) {
  Traffic traffic;
  RunRanks(Traffic::kRanks, [&](RankDriver& me) {
    std::minstd_rand random(static_cast<unsigned>(me.rank));
    struct Post {
      Rank peer;
      bool receives;
      std::uint64_t tag;
    };
    std::vector<Post> posts;
    for (Rank peer = 0; peer < Traffic::kRanks; ++peer) {
      for (std::uint64_t tag = 0; tag < Traffic::kTags; ++tag) {
        posts.insert(posts.end(), Traffic::kMessages, {peer, true, tag});
        posts.insert(posts.end(), Traffic::kMessages, {peer, false, tag});
      }
      if (peer == me.rank) continue;
      posts.insert(posts.end(), Traffic::kMessages, {peer, true, Traffic::kAnyTag});
      posts.insert(posts.end(), Traffic::kMessages, {peer, false, Traffic::kAnyTag});
    }
    std::shuffle(posts.begin(), posts.end(), random);
    std::deque<PoisonedOp> ops;
    std::deque<Op> from_any;
    std::deque<std::string> any_data;
    std::map<std::tuple<Rank, bool, std::uint64_t>, int> counts;
    for (const auto& [peer, receives, tag] : posts) {
      const int i = counts[{peer, receives, tag}]++;
      if (tag == Traffic::kAnyTag && receives) {
        any_data.emplace_back(Traffic::kAnyBytes, '?');
        me.transport.RecvFromAny(tag, any_data.back().data(), Traffic::kAnyBytes, &from_any.emplace_back());
      } else {
        PoisonedOp& op = ops.emplace_back();
        const auto t = static_cast<int>(tag);
        if (tag == Traffic::kAnyTag) {
          op.data = FromAny(me.rank, i);
        } else if (receives) {
          op.expected = &traffic.contents.at({peer, me.rank, t, i});
          op.data.assign(op.expected->size(), '?');
        } else {
          op.data = traffic.contents.at({me.rank, peer, t, i});
        }
        const auto bytes = static_cast<std::int64_t>(op.data.size());
        Endpoint& endpoint = me.transport.endpoint(peer);
        receives ? endpoint.Recv(tag, op.data.data(), bytes, &op) : endpoint.Send(tag, op.data.data(), bytes, &op);
      }
      if (random() % 16 == 0) me.transport.Progress();
      if (random() % 256 == 0) me.transport.Drain();
    }
    me.DriveUntil([&] { return AllEnded(ops) && AllEnded(from_any); });
    for (const PoisonedOp& op : ops) {
      ASSERT_TRUE(op.calls == 1 && op.status.ok() && op.as_expected) << op.status;
      ASSERT_TRUE(IsFilledWith(op.data, 'p'));
    }
    std::map<Rank, int> seen;
    for (std::size_t i = 0; i < from_any.size(); ++i) {
      ASSERT_TRUE(from_any[i].calls == 1 && from_any[i].status.ok()) << from_any[i].status;
      ASSERT_TRUE(any_data[i] == FromAny(from_any[i].source, seen[from_any[i].source]++));
    }
    EXPECT_TRUE(me.FirstLoss().ok()) << me.FirstLoss();
  });
}

// Posts `op`, whose data is there, as a Send or a Recv.
void Send(RankDriver& me, Rank to, std::uint64_t tag, PoisonedOp* op) {
  me.transport.endpoint(to).Send(tag, op->data.data(), static_cast<std::int64_t>(op->data.size()), op);
}
void Recv(RankDriver& me, Rank from, std::uint64_t tag, PoisonedOp* op) {
  me.transport.endpoint(from).Recv(tag, op->data.data(), static_cast<std::int64_t>(op->data.size()), op);
}

// A rank that only sends, to a peer that reads nothing meanwhile, until the socket takes no more.
TEST_P(UcxWired, ShortSendsWaitForTheKernelAndANoteWaitsBehindThem) {
  constexpr std::size_t kBytes = 30'000;
  constexpr int kMost = 2'000;
  std::atomic<int> sent = 0;
  std::atomic<bool> may_send = false;
  RunRanks(2, [&](RankDriver& me) {
    std::deque<PoisonedOp> ops;
    const auto payload = [](int i) { return Payload(kBytes, static_cast<std::uint64_t>(i)); };
    if (me.rank == 0) {
      const auto send = [&](int i) {
        ops.emplace_back().data = payload(i);
        Send(me, 1, 0, &ops.back());
      };
      int posted = 0;
      while (posted < kMost && AllEnded(ops)) {
        send(posted++);
        me.transport.CallEnded();
      }
      EXPECT_LT(posted, kMost) << "the socket took all messages";
      EXPECT_FALSE(me.transport.HoldsSent()) << "nothing is held of a Send that has ended";
      me.transport.Tell(1, /*group=*/7, absl::CancelledError("told"));
      EXPECT_TRUE(me.transport.HoldsSent());
      send(posted++);  // may not pass the note
      sent = posted;
      me.WakeAll();
      me.DriveUntil([&] { return may_send.load(); });
      me.DriveUntil([&] { return AllEnded(ops) && !me.transport.HoldsSent(); });
      return;
    }
    // Without Progress, which would take the messages.
    for (int ms = 0; sent == 0 && ms < 60'000; ++ms) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    may_send = true;
    me.WakeAll();
    std::deque<std::string> expected;
    for (int i = 0; i < sent; ++i) {
      PoisonedOp& op = ops.emplace_back();
      op.data.assign(kBytes, '?');
      op.expected = &expected.emplace_back(payload(i));
      Recv(me, 0, 0, &op);
    }
    me.DriveUntil([&] { return AllEnded(ops); });
    for (const PoisonedOp& op : ops) EXPECT_TRUE(op.status.ok() && op.as_expected) << op.status;
    const std::optional<Note> note = me.transport.TakeNote();
    ASSERT_TRUE(note.has_value()) << "a message that was sent after the note has come before it";
    EXPECT_EQ(note->group, 7u);
    EXPECT_EQ(note->cause.message(), "told");
  });
}

// The receiver posts its receives when the sender has left for good.
TEST_P(UcxWired, WhatWasSentBeforeAGoodbyeIsReceivedAfterIt) {
  const std::vector<std::size_t> sizes = {100, 70'000, 3'000'000, 4'000'000, 66 << 10, 200'000};
  std::atomic<bool> left = false;
  RunRanks(2, [&](RankDriver& me) {
    std::deque<PoisonedOp> ops(sizes.size());
    if (me.rank == 0) {
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        ops[i].data = Payload(sizes[i], i);
        Send(me, 1, i, &ops[i]);
      }
      me.DriveUntil([&] { return AllEnded(ops); });
      for (const PoisonedOp& op : ops) EXPECT_TRUE(op.status.ok()) << op.status;
      me.transport.Shutdown(absl::OkStatus());
      left = true;
      return me.WakeAll();
    }
    me.DriveUntil([&] { return left.load(); });
    me.DriveUntil([&] { return me.transport.HasLeft(0); });
    for (int i = 0; i < 100; ++i) me.transport.Drain(), me.transport.Check();
    std::vector<std::string> expected;
    for (std::size_t i = 0; i < sizes.size(); ++i) expected.push_back(Payload(sizes[i], i));
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      ops[i].data.assign(sizes[i], '?');
      ops[i].expected = &expected[i];
      Recv(me, 0, i, &ops[i]);
    }
    me.DriveUntil([&] { return AllEnded(ops); });
    for (const PoisonedOp& op : ops) EXPECT_TRUE(op.status.ok() && op.as_expected) << op.status;
    EXPECT_TRUE(me.FirstLoss().ok()) << me.FirstLoss();
  });
}

// Both ranks leave as soon as their own Sends have ended, with messages for the other still under way.
TEST_P(UcxWired, NothingIsLostWhenASenderLeavesAtOnce) {
  constexpr std::size_t kCount = 25;
  constexpr std::size_t kBytes = 1'000'003;
  RunRanks(3, [&](RankDriver& me) {
    const auto contents = [](Rank from, std::size_t i) {
      return Payload(kBytes, 100 * static_cast<unsigned>(from) + i);
    };
    std::deque<std::string> expected;
    std::deque<PoisonedOp> ops;
    // Rank 2 only receives, from ranks that leave; it answers with messages that nobody receives.
    for (std::size_t i = 0; i < kCount; ++i) {
      if (me.rank != 2) {
        ops.emplace_back().data = contents(me.rank, i);
        Send(me, 2, i, &ops.back());
        continue;
      }
      for (const Rank from : {0, 1}) {
        PoisonedOp& op = ops.emplace_back();
        op.data.assign(kBytes, '?');
        op.expected = &expected.emplace_back(contents(from, i));
        Recv(me, from, i, &op);
      }
    }
    std::deque<PoisonedOp> answers(me.rank == 2 ? 2 : 0);
    for (PoisonedOp& answer : answers) {
      answer.data = Payload(500'000, 1);
      Send(me, static_cast<Rank>(&answer - &answers[0]), 1000, &answer);
    }
    me.DriveUntil([&] { return AllEnded(ops); });
    for (const PoisonedOp& op : ops) EXPECT_TRUE(op.status.ok() && op.as_expected) << op.status;
    EXPECT_TRUE(me.FirstLoss().ok()) << me.FirstLoss();
    me.transport.Shutdown(absl::OkStatus());
    for (const PoisonedOp& op : ops) EXPECT_TRUE(op.calls == 1 && IsFilledWith(op.data, 'p'));
    for (const PoisonedOp& answer : answers) EXPECT_EQ(answer.calls, 1);
  });
}

// UCX refuses what is sent to a peer that has left; what the peer has sent may still be on its wire.
TEST_P(UcxWired, AMessageToAPeerThatHasLeftLosesNoneFromIt) {
  constexpr std::size_t kBytes = 2'000'000;
  std::atomic<bool> left = false;
  RunRanks(2, [&](RankDriver& me) {
    const std::string expected = Payload(kBytes, 1);
    std::deque<PoisonedOp> ops(3), refused(me.rank == 1 ? 3 : 0);
    for (std::size_t i = 0; i < ops.size(); ++i) {
      ops[i].data = me.rank == 0 ? expected : std::string(kBytes, '?');
      ops[i].expected = me.rank == 0 ? nullptr : &expected;
      me.rank == 0 ? Send(me, 1, i, &ops[i]) : Recv(me, 0, i, &ops[i]);
    }
    if (me.rank == 0) {
      me.DriveUntil([&] { return AllEnded(ops); });
      me.transport.Shutdown(absl::OkStatus());
      left = true;
      return me.WakeAll();
    }
    while (!left) {
      me.transport.Progress();
      absl::SleepFor(absl::Milliseconds(2));  // a rank that reads slowly: much has not been read when its peer leaves
    }
    for (PoisonedOp& op : refused) {
      op.data.assign(100'000, 's');
      Send(me, 0, 9, &op);
      me.transport.Progress();
    }
    me.DriveUntil([&] { return AllEnded(ops) && AllEnded(refused); });
    for (const PoisonedOp& op : ops) EXPECT_TRUE(op.status.ok() && op.as_expected) << op.status;
    // The kernel may have taken a whole message before it heard that the peer has left.
    for (const PoisonedOp& op : refused) EXPECT_TRUE(op.status.ok() || absl::IsUnavailable(op.status)) << op.status;
  });
}

TEST_P(UcxWired, ADifferenceInLengthNamesBothLengthsAndDisturbsNoOtherMessage) {
  const std::vector<std::pair<std::size_t, std::size_t>> sent_and_expected = {
      {100'000, 75'000}, {100'000, 99'999},    {100'000, 200'000},   {100'000, 10},         {10, 100'000},
      {0, 100'000},      {100'000, 0},         {24, 100'000},        {100'000, 24},         {70'000, 70'000},
      {67'584, 67'583},  {20'000'000, 70'000}, {70'000, 20'000'000}, {3'000'000, 3'000'000}};
  RunRanks(2, [&](RankDriver& me) {
    const Rank peer = 1 - me.rank;
    std::deque<PoisonedOp> sends(sent_and_expected.size()), receives(sends.size());
    for (std::size_t i = 0; i < sends.size(); ++i) {
      const auto [sent, expected] = sent_and_expected[i];
      sends[i].data = Payload(sent, i);
      receives[i].data.assign(expected, '?');
      if (me.rank == 0) Recv(me, peer, i, &receives[i]);
      Send(me, peer, i, &sends[i]);
      if (me.rank == 1) Recv(me, peer, i, &receives[i]);
    }
    me.DriveUntil([&] { return AllEnded(sends) && AllEnded(receives); });
    for (std::size_t i = 0; i < sends.size(); ++i) {
      const auto [sent, expected] = sent_and_expected[i];
      EXPECT_TRUE(sends[i].status.ok()) << sends[i].status;
      EXPECT_TRUE(IsFilledWith(receives[i].data, 'p') && receives[i].calls == 1);
      if (sent == expected) {
        EXPECT_TRUE(receives[i].status.ok()) << receives[i].status;
        continue;
      }
      EXPECT_EQ(receives[i].status.code(), absl::StatusCode::kInvalidArgument);
      for (const std::size_t bytes : {sent, expected}) {
        EXPECT_THAT(receives[i].status.message(), HasSubstr(absl::StrCat(bytes)));
      }
    }
    EXPECT_TRUE(me.FirstLoss().ok()) << me.FirstLoss();
  });
}

// How a message that is in the middle of its way is ended by one side, while the other goes on with its own.
struct InTheMiddle {
  std::deque<PoisonedOp> ops{2};  // a Send and a Recv
  void Post(RankDriver& me, std::uint64_t tag) {
    ops[0].data.assign(kVeryLong, 's');
    ops[1].data.assign(kVeryLong, '?');
    Send(me, 1 - me.rank, tag, &ops[0]);
    Recv(me, 1 - me.rank, tag, &ops[1]);
    me.DriveUntil([&] { return ops[1].data[1'000'000] != '?'; });
  }
  // What has ended stays as it is.
  void ExpectUntouched() const {
    for (const PoisonedOp& op : ops) EXPECT_TRUE(op.calls == 1 && IsFilledWith(op.data, 'p'));
  }
};

constexpr std::uint64_t TagInGroup(std::uint32_t group, std::uint64_t number) {
  return (std::uint64_t{group} << kGroupShift) | number;
}

void Exchange(RankDriver& me, std::uint64_t tag) {
  const Rank peer = 1 - me.rank;
  std::deque<PoisonedOp> ops(2);
  const std::string expected = Payload(3'000'000, static_cast<unsigned>(peer));
  ops[0].data = Payload(3'000'000, static_cast<unsigned>(me.rank));
  ops[1].data.assign(3'000'000, '?');
  ops[1].expected = &expected;
  Send(me, peer, tag, &ops[0]);
  Recv(me, peer, tag, &ops[1]);
  me.DriveUntil([&] { return AllEnded(ops); });
  EXPECT_TRUE(ops[0].status.ok() && ops[1].status.ok() && ops[1].as_expected) << ops[1].status;
}

TEST_P(UcxWired, AGroupThatIsDiscardedInTheMiddleOfAMessageLeavesMemoryAndOthersAlone) {
  RunRanks(2, [&](RankDriver& me) {
    InTheMiddle middle;
    middle.Post(me, TagInGroup(5, 1));
    if (me.rank == 0) {
      me.transport.Discard(5);
      EXPECT_EQ(middle.ops[1].calls, 0);
      me.DriveUntil([&] { return middle.ops[1].calls > 0; });
      EXPECT_EQ(middle.ops[1].status.code(), absl::StatusCode::kCancelled);
    }
    Exchange(me, TagInGroup(6, 1));
    me.CheckUntil([&] { return AllEnded(middle.ops); });
    EXPECT_TRUE(middle.ops[0].status.ok()) << middle.ops[0].status;
    middle.ExpectUntouched();
    EXPECT_TRUE(me.FirstLoss().ok()) << me.FirstLoss();
  });
}

TEST_P(UcxWired, AnAbortInTheMiddleOfAMessageEndsBothSides) {
  const absl::Status told = absl::InternalError("enough (told by rank 0)");
  RunRanks(2, [&](RankDriver& me) {
    InTheMiddle middle;
    middle.Post(me, 1);
    if (me.rank == 0) {
      me.transport.Shutdown(absl::InternalError("enough"));
      EXPECT_TRUE(AllEnded(middle.ops));
    } else {
      me.CheckUntil([&] { return AllEnded(middle.ops); });
      EXPECT_EQ(middle.ops[1].status, told);
      EXPECT_EQ(me.FirstLoss(), told);
      for (int i = 0; i < 20; ++i) me.transport.Drain();
      me.transport.Shutdown(told);
    }
    middle.ExpectUntouched();
  });
}

TEST_P(UcxWired, APeerThatIsDisconnectedInTheMiddleOfAMessageTouchesNoMemory) {
  const absl::Status cause = absl::DeadlineExceededError("rank 1 is late");
  RunRanks(2, [&](RankDriver& me) {
    InTheMiddle middle;
    middle.Post(me, 1);
    if (me.rank == 0) me.transport.Disconnect(1, cause);
    me.CheckUntil([&] { return AllEnded(middle.ops); });
    EXPECT_FALSE(middle.ops[1].status.ok());
    if (me.rank == 0) {
      EXPECT_EQ(middle.ops[1].status, cause);
    } else {
      EXPECT_THAT(middle.ops[1].status.message(), HasSubstr("rank 0"));
    }
    for (int i = 0; i < 20; ++i) me.transport.Drain();
    middle.ExpectUntouched();
    me.transport.Shutdown(absl::OkStatus());
    middle.ExpectUntouched();
  });
}

// The second send takes the announcement of the first with it, so that both have left when the peer is given up.
TEST_P(UcxWired, ADisconnectEndsEachMessageOnceAndNoOther) {
  const absl::Status cause = absl::UnavailableError("given up");
  std::atomic<bool> given_up = false;
  RunRanks(3, [&](RankDriver& me) {
    std::deque<PoisonedOp> sends(2);
    PoisonedOp message;
    message.data.assign(100, me.rank == 2 ? 's' : '?');
    if (me.rank == 0) {
      sends[0].data.assign(128 << 10, 's');
      sends[1].data.assign(8, 's');
      for (std::size_t i = 0; i < 2; ++i) Send(me, 1, i, &sends[i]);
      me.transport.Disconnect(1, cause);
      Recv(me, 2, 5, &message);
      for (int i = 0; i < 20; ++i) me.transport.Progress();
      EXPECT_EQ(message.calls, 0);
      for (const PoisonedOp& send : sends) EXPECT_EQ(send.calls, 1);
      given_up = true;
      me.WakeAll();
      me.DriveUntil([&] { return message.calls > 0; });
      EXPECT_TRUE(message.status.ok()) << message.status;
    } else if (me.rank == 1) {
      me.CheckUntil([&] { return !me.FirstLoss().ok(); });
    } else {
      me.DriveUntil([&] { return given_up.load(); });
      Send(me, 0, 5, &message);
      me.DriveUntil([&] { return message.calls > 0; });
    }
    me.transport.Shutdown(absl::OkStatus());
  });
}

// docs/errors.md says up to which length a Send may end before it is received.
TEST_P(UcxWired, ASendOf8MiBEndsBeforeItIsReceivedAndALongerOneDoesNot) {
  RunRanks(2, [](RankDriver& me) {
    const std::string fits = Payload(8 << 20, 1), longer = Payload((8 << 20) + 1, 2);
    for (const std::string& data : {fits, longer}) {
      Op sent, received;
      std::string in(data.size(), '\0');
      if (me.rank == 0) {
        const std::int64_t before = me.transport.BytesMovedWith(1);
        me.Send(1, 5, data, &sent);
        me.DriveUntil([&] { return me.transport.BytesMovedWith(1) >= before + std::ssize(fits); });
        if (data.size() == fits.size()) me.Await({&sent});
        me.Exchange(1, 6, "kept");
        EXPECT_EQ(sent.calls, data.size() == fits.size() ? 1 : 0);
        me.Exchange(1, 7, "checked");
        me.Await({&sent});
      } else {
        me.Exchange(0, 6, "kept");
        me.Exchange(0, 7, "checked");
        me.Recv(0, 5, &in, &received);
        me.Await({&received});
        EXPECT_EQ(in, data);
      }
    }
  });
}

TEST(UcxWiredDescriptors, AllAreClosedAtTheEnd) {
  const auto run = [](const std::vector<std::unique_ptr<Transport>>& transports, bool aborts) {
    ConnectBoth(transports);
    AsBoth(transports,
           [&](Rank, Transport& me) { me.Shutdown(aborts ? absl::InternalError("enough") : absl::OkStatus()); });
  };
  const TransportMaker maker = Nodes(4);
  run(maker.make(2, {.region_bytes = 4096}), false);  // UCX opens some descriptors for the process
  const std::size_t before = OpenDescriptors().size();
  for (const bool aborts : {false, true}) {
    run(maker.make(2, {.region_bytes = 4096}), aborts);
    EXPECT_EQ(OpenDescriptors().size(), before);
  }
  maker.make(2, {.region_bytes = 4096}).clear();  // which have never been connected
  EXPECT_EQ(OpenDescriptors().size(), before);
}

TEST(UcxWiredOptions, AWrongNumberOfConnectionsIsNamedWithItsBounds) {
  for (const int connections : {-1, 0, 65}) {
    const absl::Status status =
        MakeUcxTransport({.interface = "lo", .node = "", .connections = connections}, {}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr(absl::StrCat("connections is ", connections)));
    EXPECT_THAT(status.message(), HasSubstr("64"));
  }
}

}  // namespace
}  // namespace tutti
