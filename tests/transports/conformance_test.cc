#include "tests/transports/conformance.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <random>
#include <thread>

#include "absl/algorithm/container.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "tests/harness/stopped_clock.h"

namespace tutti {
namespace {

using testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Minutes(1);  // for slow machines; nothing waits that long

}  // namespace

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TransportConformance);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TransportConformanceSlow);

std::string Pattern(std::size_t size, unsigned seed) {
  std::string data(size, '\0');
  std::minstd_rand random(seed + 1);
  for (char& c : data) c = static_cast<char>(random());
  return data;
}

void RankDriver::DriveUntil(const std::function<bool()>& done) {
  const absl::Time deadline = absl::Now() + kPatience;
  while (!done()) {
    if (transport.Progress()) continue;
    if (absl::Now() > deadline) {
      ADD_FAILURE() << "rank " << rank << " waited in vain; Check says " << FirstLoss();
      return;
    }
    if (!done()) transport.Sleep(deadline);
  }
}

void RankDriver::Await(std::initializer_list<const Op*> ops) {
  DriveUntil([&] { return std::all_of(ops.begin(), ops.end(), [](const Op* op) { return op->calls > 0; }); });
}

absl::Status RankDriver::FirstLoss() {
  const absl::Span<const Loss> losses = transport.Check();
  return losses.empty() ? absl::OkStatus() : losses.front().cause;
}

void RankDriver::CheckUntil(const std::function<bool()>& done) {
  const absl::Time deadline = absl::Now() + kPatience;
  while (!done()) {
    ASSERT_LT(absl::Now(), deadline) << "rank " << rank << " waited in vain; Check says " << FirstLoss();
    transport.Check();
    if (!transport.Progress()) transport.Sleep(absl::Now() + absl::Milliseconds(5));
  }
}

absl::Status RankDriver::AwaitError() {
  absl::Status error;
  DriveUntil([&] {
    error = FirstLoss();
    return !error.ok();
  });
  return error;
}

void TransportConformance::RunRanks(int size, const std::function<void(RankDriver&)>& body, std::int64_t region_bytes) {
  TransportOptions options;
  options.region_bytes = region_bytes;
  const std::vector<std::unique_ptr<Transport>> transports = GetParam().make(size, options);
  ASSERT_EQ(static_cast<int>(transports.size()), size);
  std::vector<std::string> addresses;
  for (const auto& transport : transports) {
    const absl::StatusOr<std::string> address = transport->Address();
    ASSERT_TRUE(address.ok()) << address.status();
    addresses.push_back(*address);
  }
  std::atomic<int> connected = 0;
  std::atomic<int> finished = 0;
  const auto wake_all = [&] {
    for (const auto& transport : transports) transport->Wake();
  };
  std::vector<std::thread> threads;
  for (Rank rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      Transport& transport = *transports[static_cast<std::size_t>(rank)];
      const absl::Status status = transport.Connect(rank, addresses, absl::Now() + kPatience);
      EXPECT_TRUE(status.ok()) << status;
      connected += status.ok() ? 1 : -size;
      wake_all();
      RankDriver driver(rank, &transport, wake_all);
      driver.DriveUntil([&] { return connected == size || connected < 0; });
      if (connected == size) body(driver);
      ++finished;
      wake_all();
      driver.DriveUntil([&] { return finished == size; });
      transport.Shutdown(absl::OkStatus());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(TransportConformance, CarriesEverySize) {
  const std::vector<std::size_t> sizes = {0, 1, 3, 8, 63, 1021, 8 << 10, (64 << 10) + 1, (1 << 20) + 3};
  RunRanks(2, [&](RankDriver& me) {
    const Rank peer = 1 - me.rank;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const std::string out = Pattern(sizes[i], static_cast<unsigned>(me.rank));
      std::string in(sizes[i], '?');
      Op sent, received;
      me.Recv(peer, i, &in, &received);
      me.Send(peer, i, out, &sent);
      me.Await({&sent, &received});
      EXPECT_TRUE(sent.status.ok()) << sent.status;
      EXPECT_TRUE(received.status.ok()) << received.status;
      EXPECT_TRUE(in == Pattern(sizes[i], static_cast<unsigned>(peer))) << sizes[i] << " bytes";
    }
  });
}

TEST_P(TransportConformance, MatchesByTagInAnyOrder) {
  constexpr int kMessages = 200;
  RunRanks(2, [&](RankDriver& me) {
    const Rank peer = 1 - me.rank;
    std::vector<std::uint64_t> order(kMessages);
    // Tags that differ in their highest and lowest bits.
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = (i << 40) | (i % 2);
    std::shuffle(order.begin(), order.end(), std::minstd_rand(static_cast<unsigned>(me.rank) + 5));
    std::vector<std::string> out(kMessages), in(kMessages);
    std::deque<Op> ops(2 * kMessages);
    for (std::size_t i = 0; i < order.size(); ++i) {
      const std::size_t index = order[i] >> 40;
      out[index] = Pattern(100 * index, static_cast<unsigned>(index));
      me.Send(peer, order[i], out[index], &ops[i]);
    }
    std::reverse(order.begin(), order.end());
    for (std::size_t i = 0; i < order.size(); ++i) {
      const std::size_t index = order[i] >> 40;
      in[index].assign(100 * index, '?');
      me.Recv(peer, order[i], &in[index], &ops[kMessages + i]);
    }
    me.DriveUntil([&] { return std::all_of(ops.begin(), ops.end(), [](const Op& op) { return op.calls > 0; }); });
    for (const Op& op : ops) EXPECT_TRUE(op.calls == 1 && op.status.ok()) << op.status;
    EXPECT_TRUE(in == out);
  });
}

TEST_P(TransportConformance, SendsToItself) {
  RunRanks(2, [&](RankDriver& me) {
    for (const std::size_t size : {std::size_t{0}, std::size_t{5}, std::size_t{300'000}}) {
      const std::string out = Pattern(size, 9);
      std::string in(size, '?');
      Op sent, received;
      me.Send(me.rank, 1, out, &sent);
      me.Recv(me.rank, 1, &in, &received);
      me.Await({&sent, &received});
      EXPECT_TRUE(sent.status.ok() && received.status.ok()) << sent.status << received.status;
      EXPECT_TRUE(in == out);
    }
  });
}

TEST_P(TransportConformance, CompletionsAreNeverInline) {
  RunRanks(1, [&](RankDriver& me) {
    char byte = 1, copy = 0;
    Op sent, received;
    me.transport.endpoint(0).Recv(1, &copy, 1, &received);
    EXPECT_EQ(received.calls, 0);
    me.transport.endpoint(0).Send(1, &byte, 1, &sent);
    EXPECT_EQ(sent.calls + received.calls, 0);
    me.Await({&sent, &received});
  });
}

// A completion posts the next message, as the engine does.
struct Relay : Completion {
  RankDriver* driver = nullptr;
  Rank peer = 0;
  int remaining = 0;
  std::int64_t value = 0;

  void Post() { driver->transport.endpoint(peer).Recv(7, &value, sizeof(value), this); }
};

TEST_P(TransportConformance, CompletionsMayPost) {
  constexpr int kRounds = 100;
  RunRanks(2, [&](RankDriver& me) {
    const Rank peer = 1 - me.rank;
    Relay relay;
    relay.driver = &me;
    relay.peer = peer;
    relay.remaining = kRounds;
    relay.done = [](Completion* self, const absl::Status& status) {
      EXPECT_TRUE(status.ok()) << status;
      auto* posted = static_cast<Relay*>(self);
      if (--posted->remaining > 0) posted->Post();
    };
    relay.Post();
    for (std::int64_t i = 0; i < kRounds; ++i) {
      Op sent;
      me.transport.endpoint(peer).Send(7, &i, sizeof(i), &sent);
      me.Await({&sent});
    }
    me.DriveUntil([&] { return relay.remaining == 0; });
    EXPECT_EQ(relay.value, kRounds - 1);
  });
}

TEST_P(TransportConformance, DrainTakesAllThatHasArrived) {
  if (!GetParam().is_prompt) GTEST_SKIP() << "nobody can say when all of it has arrived";
  constexpr std::size_t kMessages = 40;  // together more than a Progress of UCX takes, less than a socket holds
  constexpr std::size_t kBytes = 1000;
  std::atomic<bool> arrived = false;
  std::atomic<bool> drained = false;
  RunRanks(2, [&](RankDriver& me) {
    std::vector<std::string> data(kMessages);
    std::vector<Op> ops(kMessages);
    for (std::size_t i = 0; i < kMessages; ++i) {
      data[i] = me.rank == 0 ? Pattern(kBytes, static_cast<unsigned>(i)) : std::string(kBytes, 0);
    }
    const auto all_ended = [&] { return absl::c_all_of(ops, [](const Op& op) { return op.calls == 1; }); };
    if (me.rank == 0) {
      for (std::size_t i = 0; i < kMessages; ++i) me.Send(1, i, data[i], &ops[i]);
      me.transport.Drain();
      arrived = true;
      arrived.notify_one();
      me.DriveUntil([&] { return drained && all_ended(); });
    } else {
      for (std::size_t i = 0; i < kMessages; ++i) me.Recv(0, i, &data[i], &ops[i]);
      arrived.wait(false);  // and moves nothing meanwhile
      EXPECT_TRUE(me.transport.Drain());
      EXPECT_TRUE(all_ended());
      me.DriveUntil(all_ended);
      drained = true;
      me.WakeAll();
      for (std::size_t i = 0; i < kMessages; ++i) EXPECT_EQ(data[i], Pattern(kBytes, static_cast<unsigned>(i)));
    }
  });
}

TEST_P(TransportConformance, FloodsBothWaysWithMoreRanksThanCores) {
  constexpr int kRanks = 5;
  constexpr std::size_t kMessages = 64;
  const auto data_of = [](Rank rank, std::size_t message) {
    return Pattern(message * 300, static_cast<unsigned>(rank) * 1000 + static_cast<unsigned>(message));
  };
  RunRanks(kRanks, [&](RankDriver& me) {
    std::deque<Op> ops(2 * kRanks * kMessages);
    std::vector<std::string> out(kMessages), in(kRanks * kMessages);
    for (std::size_t m = 0; m < kMessages; ++m) out[m] = data_of(me.rank, m);
    std::size_t op = 0;
    for (std::size_t m = 0; m < kMessages; ++m) {
      for (Rank peer = 0; peer < kRanks; ++peer) {
        me.Send(peer, m, out[m], &ops[op++]);
        std::string& data = in[static_cast<std::size_t>(peer) * kMessages + m];
        data.assign(m * 300, '?');
        me.Recv(peer, m, &data, &ops[op++]);
      }
    }
    me.DriveUntil([&] { return std::all_of(ops.begin(), ops.end(), [](const Op& o) { return o.calls > 0; }); });
    for (const Op& o : ops) EXPECT_TRUE(o.calls == 1 && o.status.ok()) << o.status;
    for (Rank peer = 0; peer < kRanks; ++peer) {
      for (std::size_t m = 0; m < kMessages; ++m) {
        EXPECT_TRUE(in[static_cast<std::size_t>(peer) * kMessages + m] == data_of(peer, m))
            << "message " << m << " from rank " << peer;
      }
    }
  });
}

TEST_P(TransportConformance, WrongLengthNamesBothLengths) {
  for (const auto& [sent_bytes, expected_bytes] : {std::pair<std::size_t, std::size_t>{10, 4},
                                                   {4, 10},
                                                   {0, 1},
                                                   {200'001, 200'000},
                                                   {200'000, 200'001},
                                                   {2'000'000, 12}}) {
    RunRanks(2, [&, sent_bytes = sent_bytes, expected_bytes = expected_bytes](RankDriver& me) {
      Op op;
      if (me.rank == 0) {
        const std::string out = Pattern(sent_bytes, 1);
        me.Send(1, 3, out, &op);
        me.Await({&op});
        return;
      }
      std::string in(expected_bytes, '?');
      me.Recv(0, 3, &in, &op);
      me.Await({&op});
      EXPECT_EQ(op.status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(op.status.message(), HasSubstr("rank 0"));
      EXPECT_THAT(op.status.message(), HasSubstr(std::to_string(sent_bytes) + " bytes"));
      EXPECT_THAT(op.status.message(), HasSubstr("expects " + std::to_string(expected_bytes)));
    });
  }
}

TEST_P(TransportConformance, RegionsAreZeroMappedAndShared) {
  constexpr int kRanks = 3;
  constexpr std::int64_t kBytes = std::int64_t{1} << 33;  // address space, not memory
  RunRanks(
      kRanks,
      [&](RankDriver& me) {
        const MappedRegion mine = me.transport.region();
        ASSERT_NE(mine.base, nullptr);
        EXPECT_EQ(mine.bytes, kBytes);
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(mine.base) % 4096, 0u);
        EXPECT_EQ(mine.base[kBytes - 1], std::byte{0});
        mine.base[kBytes / 2] = static_cast<std::byte>(me.rank + 1);
        // Everybody has written when everybody's message has come.
        std::deque<Op> ops(2 * kRanks);
        for (Rank peer = 0; peer < kRanks; ++peer) {
          me.transport.endpoint(peer).Send(1, nullptr, 0, &ops[static_cast<std::size_t>(peer)]);
          me.transport.endpoint(peer).Recv(1, nullptr, 0, &ops[static_cast<std::size_t>(kRanks + peer)]);
        }
        me.DriveUntil([&] { return std::all_of(ops.begin(), ops.end(), [](const Op& o) { return o.calls > 0; }); });
        for (Rank peer = 0; peer < kRanks; ++peer) {
          const MappedRegion theirs = me.transport.endpoint(peer).region();
          if (peer != me.rank && !GetParam().maps_peers) {
            EXPECT_EQ(theirs.base, nullptr);
            continue;
          }
          ASSERT_NE(theirs.base, nullptr);
          EXPECT_EQ(theirs.base == mine.base, peer == me.rank);
          EXPECT_EQ(theirs.bytes, kBytes);
          EXPECT_EQ(theirs.base[kBytes / 2], static_cast<std::byte>(peer + 1));
        }
      },
      kBytes);
}

TEST_P(TransportConformance, ShutdownEndsWhatIsPendingWithItsCauseOnce) {
  RunRanks(3, [&](RankDriver& me) {
    const std::string out = Pattern(3'000'000, 1);
    std::string in(100, '?');
    Op sent, received;
    me.Recv((me.rank + 1) % 3, 1, &in, &received);  // is never sent
    me.Send((me.rank + 1) % 3, 2, out, &sent);      // is never received
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
  const std::vector<std::string> out = {Pattern(100, static_cast<unsigned>(me.rank)),
                                        Pattern(2'000'000, static_cast<unsigned>(me.rank))};
  std::vector<std::string> in = {std::string(out[0].size(), '?'), std::string(out[1].size(), '?')};
  for (std::size_t i = 0; i < 2; ++i) {
    me.Recv(peer, tag + i, &in[i], &ops[i]);
    me.Send(peer, tag + i, out[i], &ops[2 + i]);
  }
  me.CheckUntil([&] { return ops.all_ended(); });
  ops.ExpectEach(absl::OkStatus());
  for (std::size_t i = 0; i < 2; ++i) EXPECT_TRUE(in[i] == Pattern(in[i].size(), static_cast<unsigned>(peer)));
}

TEST_P(TransportConformance, APeerThatAbortsIsLostAlone) {
  const absl::Status told = absl::InternalError("rank 2 has had enough (told by rank 2)");
  std::atomic<int> ready = 0;
  RunRanks(3, [&](RankDriver& me) {
    if (me.rank == 2) {
      me.DriveUntil([&] { return ready == 2; });
      return me.transport.Shutdown(absl::InternalError("rank 2 has had enough"));
    }
    const std::string large = Pattern(3'000'000, 1);
    std::string in(100, '?');
    Ops lost(2), late(2);
    me.Recv(2, 1, &in, &lost[0]);
    me.Send(2, 2, large, &lost[1]);  // is never received
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
    const std::string small = Pattern(100, 1), large = Pattern(8'000'000, 2);
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
      me.Send(2, 3, large, &ended[2]);  // is never received
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
      me.transport.Tell(2, 1, cause);  // is lost
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
  constexpr std::size_t kSmall = 300;  // more than one sweep throws away
  std::atomic<int> step = 0;
  RunRanks(3, [&](RankDriver& me) {
    const auto advance_to = [&](int s) {
      step = s;
      me.WakeAll();
    };
    const auto await = [&](int s) { me.CheckUntil([&, s] { return step >= s; }); };
    const std::string small = Pattern(1000, 1), middle = Pattern(50'000, 3), large = Pattern(8'000'000, 2);
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
      me.Recv(0, TagInGroup(kGroup, 5000), &in, &discarded[0]);  // are never sent
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
      EXPECT_TRUE(in == Pattern(in.size(), 7));
      EXPECT_TRUE(me.FirstLoss().ok()) << me.FirstLoss();
    } else {
      await(4);
      Op sent;
      const std::string out = Pattern(100, 7);
      me.Send(1, TagInGroup(kOther, 5000), out, &sent);
      me.CheckUntil([&] { return sent.calls > 0; });
    }
  });
}

TEST_P(TransportConformance, OldDiscardedGroupsAreForgotten) {
  RunRanks(1, [&](RankDriver& me) {
    for (std::uint32_t group = 1; group <= Transport::kMostDiscarded + 1; ++group) me.transport.Discard(group);
    const std::string out = Pattern(10, 1);
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
      data[i] = me.rank == 0 ? Pattern(size(i), 3) : std::string(size(i), '?');
      if (me.rank == 0) me.Send(1, i, data[i], &ops[i]);
      if (me.rank == 1) me.Recv(0, i, &data[i], &ops[i]);
    }
    me.DriveUntil(all_ended);
    if (me.rank == 0) return me.transport.Shutdown(absl::OkStatus());
    for (std::size_t i = 0; i < kMessages; ++i) EXPECT_TRUE(ops[i].status.ok() && data[i] == Pattern(size(i), 3));
    EXPECT_TRUE(me.FirstLoss().ok()) << me.FirstLoss();
  });
}

TEST_P(TransportConformance, WhoSaysGoodbyeHasLeftOnceItsMessagesHaveCome) {
  std::atomic<int> noticed = 0;
  RunRanks(3, [&](RankDriver& me) {
    // Small ones, and such that UCX announces first and moves when they are received.
    const std::vector<std::size_t> sizes = {10, 3'000'000, 70'000};
    std::deque<Op> ops(sizes.size());
    std::vector<std::string> data;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      data.push_back(me.rank == 2 ? Pattern(sizes[i], 3) : std::string(sizes[i], '?'));
    }
    EXPECT_FALSE(me.transport.HasLeft(me.rank));
    if (me.rank == 2) {
      for (std::size_t i = 0; i < sizes.size(); ++i) me.Send(0, i, data[i], &ops[i]);
      me.DriveUntil([&] { return ops[0].calls > 0 && ops[1].calls > 0 && ops[2].calls > 0; });
      return me.transport.Shutdown(absl::OkStatus());
    }
    Op never;
    std::string in(5, '?');
    me.Recv(2, 7, &in, &never);
    if (me.rank == 0) {
      EXPECT_FALSE(me.transport.HasLeft(2));
      for (std::size_t i = 0; i < sizes.size(); ++i) me.Recv(2, i, &data[i], &ops[i]);
    }
    me.DriveUntil([&] { return me.transport.HasLeft(2); });
    EXPECT_TRUE(me.FirstLoss().ok()) << me.FirstLoss();
    EXPECT_EQ(never.calls, 0);
    me.transport.Progress();  // what HasLeft has found is told here
    if (me.rank == 0) {
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        EXPECT_EQ(ops[i].calls, 1);
        EXPECT_TRUE(ops[i].status.ok() && data[i] == Pattern(sizes[i], 3)) << ops[i].status;
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
  std::atomic<int> asked = 0;
  std::atomic<int> answered = 0;
  std::atomic<Rank> awaited = 17;  // outlives the transports' use of it
  RunRanks(3, [&](RankDriver& me) {
    Transport& transport = me.transport;
    if (me.rank == 2) {
      transport.ShowWaitsFor(&awaited);
      // A rank that computes answers nothing.
      while (asked < 2) absl::SleepFor(absl::Milliseconds(1));
      return;  // and goes on to answer until all are done
    }
    EXPECT_EQ(transport.WaitsFor(2), std::nullopt);
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
      // Who shows nothing waits for nobody. A new question forgets the old answer.
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

TEST_P(TransportConformance, WhatIsSecludedKeepsItsContentsAndNoPeerWritesToIt) {
  constexpr std::int64_t kPage = 4096;
  constexpr std::int64_t kBytes = 16 * kPage;
  std::atomic<int> step = 0;
  RunRanks(
      2,
      [&](RankDriver& me) {
        const auto await = [&](int s) { me.DriveUntil([&, s] { return step >= s; }); };
        const auto advance = [&] {
          ++step;
          me.WakeAll();
        };
        const MappedRegion mine = me.transport.region();
        if (me.rank == 0) std::fill(mine.base, mine.base + kBytes, std::byte{7});
        const MappedRegion theirs = me.transport.endpoint(1 - me.rank).region();
        if (me.rank == 1) {
          await(1);
          if (theirs.base != nullptr) std::fill(theirs.base, theirs.base + kBytes, std::byte{9});
          advance();
          return;
        }
        // From within the third page to within the sixth: four pages.
        const absl::Status status = me.transport.Seclude(mine.base + 2 * kPage + 100, 3 * kPage);
        advance();
        await(2);
        if (absl::IsUnimplemented(status)) return;
        ASSERT_TRUE(status.ok()) << status;
        for (std::int64_t i = 0; i < kBytes; ++i) {
          const bool shared = theirs.base != nullptr && (i < 2 * kPage || i >= 6 * kPage);
          ASSERT_EQ(mine.base[i], shared ? std::byte{9} : std::byte{7}) << i;
        }
        std::fill(mine.base, mine.base + kBytes, std::byte{1});
        EXPECT_TRUE(me.transport.Seclude(mine.base, 0).ok());
        EXPECT_TRUE(me.transport.Seclude(mine.base, kBytes).ok());  // again, and more
        EXPECT_EQ(mine.base[kBytes - 1], std::byte{1});
        EXPECT_TRUE(absl::IsInvalidArgument(me.transport.Seclude(mine.base - 1, 2)));
        EXPECT_TRUE(absl::IsInvalidArgument(me.transport.Seclude(mine.base + 1, mine.bytes)));
        EXPECT_TRUE(absl::IsInvalidArgument(me.transport.Seclude(mine.base, -1)));
      },
      kBytes);
}

TEST_P(TransportConformance, WakeEndsSleep) {
  RunRanks(1, [&](RankDriver& me) {
    std::atomic<bool> woken = false;
    std::thread waker([&] {
      woken = true;
      me.transport.Wake();
    });
    while (!woken) me.transport.Sleep(absl::InfiniteFuture());
    waker.join();
    me.transport.Wake();
    me.transport.Sleep(absl::InfiniteFuture());  // the Wake before it counts
  });
}

TEST_P(TransportConformance, SleepEndsAtItsTime) {
  RunRanks(1, [&](RankDriver& me) {
    const absl::Time until = absl::Now() + absl::Milliseconds(2);
    while (absl::Now() < until) me.transport.Sleep(until);
    me.transport.Sleep(absl::InfinitePast());
    const StoppedClock stopped;
    me.transport.Sleep(absl::Now() + absl::Milliseconds(2));
  });
}

TEST_P(TransportConformance, ConnectRejectsAddressesOfAnotherWorld) {
  const std::vector<std::unique_ptr<Transport>> transports = GetParam().make(2, {.region_bytes = 4096});
  const std::string mine = *transports[0]->Address();
  const absl::Time deadline = absl::Now() + kPatience;
  const absl::Status garbage = transports[0]->Connect(0, {mine, "garbage"}, deadline);
  EXPECT_EQ(garbage.code(), absl::StatusCode::kInvalidArgument) << garbage;
  EXPECT_THAT(garbage.message(), HasSubstr("rank 1"));
  const absl::Status wrong_rank = transports[1]->Connect(0, {mine, *transports[1]->Address()}, deadline);
  EXPECT_EQ(wrong_rank.code(), absl::StatusCode::kInvalidArgument) << wrong_rank;
  EXPECT_EQ(transports[1]->Connect(2, {mine, *transports[1]->Address()}, deadline).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_P(TransportConformance, DestructionWithoutShutdownTellsThePeers) {
  std::vector<std::unique_ptr<Transport>> transports = GetParam().make(2, {.region_bytes = 4096});
  const std::vector<std::string> addresses = {*transports[0]->Address(), *transports[1]->Address()};
  std::thread other([&] {
    EXPECT_TRUE(transports[1]->Connect(1, addresses, absl::Now() + kPatience).ok());
    transports[1].reset();
  });
  // Rank 1 may be gone before rank 0 is through with connecting.
  absl::Status error = transports[0]->Connect(0, addresses, absl::Now() + kPatience);
  if (error.ok()) error = RankDriver(0, transports[0].get(), [] {}).AwaitError();
  other.join();
  EXPECT_EQ(error.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(error.message(), HasSubstr("rank 1"));
}

}  // namespace tutti
