// Which receive takes which message: the order of equal tags, and receives from any source, on every transport.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "gmock/gmock.h"
#include "tests/transports/conformance.h"
#include "tests/transports/payload.h"

namespace tutti {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t kTag = 77;

// Lengths on both sides of every limit at which a transport changes its way to send.
std::size_t LengthOf(std::size_t message) {
  constexpr std::size_t kLengths[] = {8, 300'000, 1, 9'000, 0, 64, 70'000};
  return kLengths[message % std::size(kLengths)];
}

bool AllEnded(const std::deque<Op>& ops) {
  return absl::c_all_of(ops, [](const Op& op) { return op.calls > 0; });
}

// All messages of the tag are under way at once.
TEST_P(TransportConformance, MessagesOfOneTagAreReceivedInTheOrderSent) {
  constexpr std::size_t kMessages = 140;
  for (const bool receives_first : {true, false}) {
    std::atomic<int> posted = 0;
    RunRanks(2, [&](RankDriver& me) {
      const Rank peer = 1 - me.rank;
      std::vector<std::string> in(kMessages), out(kMessages);
      std::deque<Op> sent(kMessages), received(kMessages);
      const auto receive_all = [&] {
        for (std::size_t i = 0; i < kMessages; ++i) {
          in[i].assign(LengthOf(i), '?');
          me.Recv(peer, kTag, &in[i], &received[i]);
        }
      };
      const auto meet = [&](int count) {
        ++posted;
        me.WakeAll();
        me.DriveUntil([&] { return posted >= count; });
      };
      if (receives_first) receive_all();
      meet(2);
      for (std::size_t i = 0; i < kMessages; ++i) {
        out[i] = Payload(LengthOf(i), static_cast<unsigned>(1000 * me.rank) + static_cast<unsigned>(i));
        me.Send(peer, kTag, out[i], &sent[i]);
      }
      meet(4);
      if (!receives_first) receive_all();
      me.DriveUntil([&] { return AllEnded(sent) && AllEnded(received); });
      for (std::size_t i = 0; i < kMessages; ++i) {
        EXPECT_EQ(received[i].status, absl::OkStatus()) << i;
        const auto seed = static_cast<unsigned>(1000 * peer) + static_cast<unsigned>(i);
        EXPECT_TRUE(in[i] == Payload(LengthOf(i), seed)) << "message " << i;
      }
    });
  }
}

// The senders race, rank 0 too. A message names its sender and its number, and is long or short.
TEST_P(TransportConformance, ReceivesFromAnySourceTakeEachMessageOnceAndInTheOrderOfItsSender) {
  if (!GetParam().receives_from_any) GTEST_SKIP() << "the transport duplicates messages";
  constexpr int kRanks = 4;
  constexpr int kMessages = 100;
  for (const std::size_t bytes : {std::size_t{8}, std::size_t{200'000}}) {
    RunRanks(kRanks, [&](RankDriver& me) {
      std::vector<std::string> in(me.rank == 0 ? kRanks * kMessages : 0), out(kMessages);
      std::deque<Op> received(in.size()), sent(kMessages);
      for (std::size_t i = 0; i < in.size(); ++i) {
        in[i].assign(bytes, '?');
        me.transport.RecvFromAny(kTag, in[i].data(), static_cast<std::int64_t>(bytes), &received[i]);
        if (i % 8 == 0) me.transport.Progress();
      }
      for (int i = 0; i < kMessages; ++i) {
        out[i].assign(bytes, static_cast<char>(i));
        out[i][0] = static_cast<char>(me.rank);
        me.Send(0, kTag, out[i], &sent[i]);
      }
      me.DriveUntil([&] { return AllEnded(sent) && AllEnded(received); });
      std::vector<int> next(kRanks);
      for (std::size_t i = 0; i < in.size(); ++i) {
        ASSERT_EQ(received[i].status, absl::OkStatus());
        const Rank source = received[i].source;
        ASSERT_TRUE(source >= 0 && source < kRanks) << source;
        std::string expected(bytes, static_cast<char>(next[source]++));
        expected[0] = static_cast<char>(source);
        EXPECT_TRUE(in[i] == expected) << "message " << next[source] - 1 << " of rank " << source;
      }
    });
  }
}

// Rank 0 posts receives from any source and from rank 1 in turn; rank 1 sends as many messages, before or after.
TEST_P(TransportConformance, OfSeveralReceivesTheOnePostedFirstTakesTheMessage) {
  if (!GetParam().receives_from_any) GTEST_SKIP() << "the transport duplicates messages";
  constexpr std::size_t kMessages = 60;
  for (const bool receives_first : {true, false}) {
    std::atomic<bool> go = false;
    std::atomic<bool> received_all = false;
    RunRanks(2, [&](RankDriver& me) {
      std::vector<std::string> data(kMessages);
      std::deque<Op> ops(kMessages);
      if (me.rank == 1) {
        me.DriveUntil([&] { return !receives_first || go; });
        for (std::size_t i = 0; i < kMessages; ++i) {
          data[i] = Payload(LengthOf(i), static_cast<unsigned>(i));
          me.Send(0, kTag, data[i], &ops[i]);
        }
        go = true;
        me.WakeAll();
        return me.DriveUntil([&] { return AllEnded(ops) && received_all; });
      }
      me.DriveUntil([&] { return receives_first || go; });
      for (std::size_t i = 0; i < kMessages; ++i) {
        data[i].assign(LengthOf(i), '?');
        if (i % 3 == 0) {
          me.transport.RecvFromAny(kTag, data[i].data(), static_cast<std::int64_t>(data[i].size()), &ops[i]);
        } else {
          me.Recv(1, kTag, &data[i], &ops[i]);
        }
      }
      go = true;
      me.WakeAll();
      me.DriveUntil([&] { return AllEnded(ops); });
      received_all = true;
      me.WakeAll();
      for (std::size_t i = 0; i < kMessages; ++i) {
        EXPECT_EQ(ops[i].status, absl::OkStatus()) << i;
        EXPECT_TRUE(data[i] == Payload(LengthOf(i), static_cast<unsigned>(i))) << "message " << i;
        if (i % 3 == 0) {
          EXPECT_EQ(ops[i].source, 1);
        }
      }
    });
  }
}

TEST_P(TransportConformance, AMessageToOneselfMeetsAReceiveFromAnySource) {
  if (!GetParam().receives_from_any) GTEST_SKIP() << "the transport duplicates messages";
  RunRanks(1, [&](RankDriver& me) {
    for (const bool receives_first : {true, false}) {
      for (const std::size_t bytes : {std::size_t{0}, std::size_t{5}, std::size_t{9'000'000}}) {
        const std::string out = Payload(bytes, 3);
        std::string in(bytes, '?');
        Op sent, received;
        if (!receives_first) me.Send(0, kTag, out, &sent);
        me.transport.RecvFromAny(kTag, in.data(), static_cast<std::int64_t>(bytes), &received);
        if (receives_first) me.Send(0, kTag, out, &sent);
        me.Await({&sent, &received});
        EXPECT_TRUE(received.status.ok() && sent.status.ok()) << received.status << sent.status;
        EXPECT_EQ(received.source, 0);
        EXPECT_TRUE(in == out);
      }
    }
  });
}

TEST_P(TransportConformance, AReceiveFromAnySourceNamesTheSenderOfAMessageOfAnotherLength) {
  if (!GetParam().receives_from_any) GTEST_SKIP() << "the transport duplicates messages";
  for (const std::size_t bytes : {std::size_t{3}, std::size_t{500'000}}) {
    RunRanks(2, [&](RankDriver& me) {
      std::string data(me.rank == 1 ? bytes : 100, 'x');
      Op op;
      if (me.rank == 1) {
        me.Send(0, kTag, data, &op);
      } else {
        me.transport.RecvFromAny(kTag, data.data(), 100, &op);
      }
      me.Await({&op});
      if (me.rank == 1) return;
      EXPECT_EQ(op.status.code(), absl::StatusCode::kInvalidArgument) << op.status;
      EXPECT_THAT(std::string(op.status.message()), HasSubstr("message from rank 1"));
      EXPECT_THAT(std::string(op.status.message()), HasSubstr("the receive expects 100"));
    });
  }
}

// The loss of a peer ends the receives from this peer, also a receive that is queued behind a receive from any source,
// which other peers may still serve.
TEST_P(TransportConformance, AReceiveFromAnySourceOutlivesAPeerButNotItsGroup) {
  if (!GetParam().receives_from_any) GTEST_SKIP() << "the transport duplicates messages";
  constexpr std::uint32_t kGroup = 3;
  const std::uint64_t tag = (std::uint64_t{kGroup} << kGroupShift) | 5;
  const std::uint64_t other = (std::uint64_t{kGroup + 1} << kGroupShift) | 5;
  RunRanks(3, [&](RankDriver& me) {
    if (me.rank == 1) return me.transport.Shutdown(absl::InternalError("out of luck"));
    if (me.rank == 2) {
      const std::string out = "hello";
      Op sent;
      (void)me.AwaitError();
      me.Send(0, other, out, &sent);
      return me.Await({&sent});
    }
    std::string in[4] = {"?????", "?????", "?????", "?????"};
    Op any, behind, discarded, discarded_too;
    me.transport.RecvFromAny(other, in[0].data(), 5, &any);
    me.Recv(1, other, &in[1], &behind);
    me.transport.RecvFromAny(tag, in[2].data(), 5, &discarded);
    me.Recv(2, tag, &in[3], &discarded_too);
    EXPECT_THAT(me.AwaitError().ToString(), HasSubstr("out of luck"));
    me.CheckUntil([&] { return behind.calls > 0; });
    EXPECT_THAT(behind.status.ToString(), HasSubstr("out of luck"));
    me.transport.Discard(kGroup);
    me.Await({&any, &discarded, &discarded_too});
    EXPECT_EQ(any.status, absl::OkStatus());
    EXPECT_EQ(any.source, 2);
    EXPECT_EQ(in[0], "hello");
    EXPECT_EQ(discarded.status.code(), absl::StatusCode::kCancelled) << discarded.status;
    EXPECT_THAT(std::string(discarded.status.message()), HasSubstr("from any rank"));
    EXPECT_EQ(discarded_too.status.code(), absl::StatusCode::kCancelled) << discarded_too.status;
  });
}

TEST_P(TransportConformance, ShutdownEndsReceivesFromAnySource) {
  RunRanks(1, [&](RankDriver& me) {
    Op before, after;
    if (GetParam().receives_from_any) me.transport.RecvFromAny(kTag, nullptr, 0, &before);
    me.transport.Shutdown(absl::InternalError("over"));
    me.transport.RecvFromAny(kTag, nullptr, 0, &after);
    me.Await({&after});
    EXPECT_EQ(after.status, absl::InternalError("over"));
    EXPECT_EQ(before.calls, GetParam().receives_from_any ? 1 : 0);
  });
}

}  // namespace
}  // namespace tutti
