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
#include "tests/transports/payload.h"
#include "tests/transports/sockets_at.h"

namespace tutti {
namespace {

using testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Minutes(1);  // a bound for slow machines; no wait lasts that long

}  // namespace

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TransportConformance);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TransportConformanceSlow);

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
      const std::string out = Payload(sizes[i], static_cast<unsigned>(me.rank));
      std::string in(sizes[i], '?');
      Op sent, received;
      me.Recv(peer, i, &in, &received);
      me.Send(peer, i, out, &sent);
      me.Await({&sent, &received});
      EXPECT_TRUE(sent.status.ok()) << sent.status;
      EXPECT_TRUE(received.status.ok()) << received.status;
      EXPECT_TRUE(in == Payload(sizes[i], static_cast<unsigned>(peer))) << sizes[i] << " bytes";
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
      out[index] = Payload(100 * index, static_cast<unsigned>(index));
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
      const std::string out = Payload(size, 9);
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

TEST_P(TransportConformance, CallEndedCallsWhatHasEndedOnceAndLooksForNothing) {
  RunRanks(2, [&](RankDriver& me) {
    Endpoint& peer = me.transport.endpoint(1 - me.rank);
    const std::vector<char> sent = {1, 2};
    std::vector<char> received(2);
    if (me.rank == 0) {
      Op first, second;
      peer.Send(1, &sent[0], 1, &first);
      peer.Send(2, &sent[1], 1, &second);
      while (me.transport.CallEnded()) {
      }
      me.Await({&first, &second});
      EXPECT_EQ(first.calls + second.calls, 2);
      return;
    }
    Op first, second;
    peer.Recv(2, &received[1], 1, &second);
    me.Await({&second});  // the message before this one has come, too
    peer.Recv(1, &received[0], 1, &first);
    EXPECT_EQ(first.calls, 0);
    const bool called = me.transport.CallEnded();
    EXPECT_EQ(first.calls, called ? 1 : 0);
    EXPECT_FALSE(me.transport.CallEnded());
    me.Await({&first});
    EXPECT_EQ(first.calls, 1);
    EXPECT_EQ(received, sent);
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
      data[i] = me.rank == 0 ? Payload(kBytes, static_cast<unsigned>(i)) : std::string(kBytes, 0);
    }
    const auto all_ended = [&] { return absl::c_all_of(ops, [](const Op& op) { return op.calls == 1; }); };
    if (me.rank == 0) {
      for (std::size_t i = 0; i < kMessages; ++i) me.Send(1, i, data[i], &ops[i]);
      me.transport.Drain();
      AwaitAllDelivery();
      arrived = true;
      arrived.notify_one();
      me.DriveUntil([&] { return drained && all_ended(); });
    } else {
      for (std::size_t i = 0; i < kMessages; ++i) me.Recv(0, i, &data[i], &ops[i]);
      arrived.wait(false);  // this rank moves no messages meanwhile
      EXPECT_TRUE(me.transport.Drain());
      EXPECT_TRUE(all_ended());
      me.DriveUntil(all_ended);
      drained = true;
      me.WakeAll();
      for (std::size_t i = 0; i < kMessages; ++i) EXPECT_EQ(data[i], Payload(kBytes, static_cast<unsigned>(i)));
    }
  });
}

TEST_P(TransportConformance, FloodsBothWaysWithMoreRanksThanCores) {
  constexpr int kRanks = 5;
  constexpr std::size_t kMessages = 64;
  const auto data_of = [](Rank rank, std::size_t message) {
    return Payload(message * 300, static_cast<unsigned>(rank) * 1000 + static_cast<unsigned>(message));
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
        const std::string out = Payload(sent_bytes, 1);
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
        // When the messages of all ranks have come, all ranks have written.
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
        // The range begins within the third page and ends within the sixth: four pages are secluded.
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
        EXPECT_TRUE(me.transport.Seclude(mine.base, kBytes).ok());  // the same pages again, and others
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
    me.transport.Sleep(absl::InfiniteFuture());  // a Wake before Sleep ends Sleep
  });
}

TEST_P(TransportConformance, APeerOnTheSameNodeEndsSleep) {
  if (!GetParam().maps_peers) GTEST_SKIP() << "each rank is on a node of its own";
  std::atomic<int> turn = 0;
  RunRanks(2, [&](RankDriver& me) {
    constexpr int kTurns = 200;
    for (int mine = me.rank; mine < kTurns; mine += 2) {
      while (turn != mine) me.transport.Sleep(absl::InfiniteFuture());
      turn = mine + 1;
      me.transport.endpoint(1 - me.rank).Wake();
    }
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
  // Rank 1 may have gone before rank 0 has connected.
  absl::Status error = transports[0]->Connect(0, addresses, absl::Now() + kPatience);
  if (error.ok()) error = RankDriver(0, transports[0].get(), [] {}).AwaitError();
  other.join();
  EXPECT_EQ(error.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(error.message(), HasSubstr("rank 1"));
}

}  // namespace tutti
