// Messages between the memory of (fake) GPUs by way of pinned memory, over the transport of threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "tests/harness/fake_cuda.h"
#include "tests/harness/fake_device.h"
#include "transports/staged/pipe.h"
#include "tutti/staged_transport.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

constexpr std::uint32_t kNumber = 3;

struct StagedRank {
  Rank rank = 0;
  std::shared_ptr<Transport> transport;
  std::unique_ptr<NativeTransport> staged;
  CUstream_st* stream = nullptr;

  // The result of moving `calls` as one group.
  absl::Status Move(const std::vector<NativeCall>& calls) const {
    if (absl::Status status = staged->Enqueue(calls, stream); !status.ok()) return status;
    const absl::Time deadline = absl::Now() + absl::Seconds(30);
    while (absl::Now() < deadline) {
      const absl::StatusOr<bool> ready = staged->Ready();
      if (!ready.ok()) return ready.status();
      if (!*ready) continue;
      return FakeCuda::Table().synchronize_stream(stream) == kCudaSuccess ? absl::OkStatus()
                                                                          : absl::InternalError("the stream");
    }
    return absl::DeadlineExceededError("the group does not end");
  }
};

// Ranks that are threads, all on one GPU.
class StagedWorld {
 public:
  explicit StagedWorld(int size) : ranks_(static_cast<std::size_t>(size)) {
    const auto hub = MakeInprocHub(size);
    std::vector<std::string> addresses;
    for (StagedRank& rank : ranks_) {
      rank.rank = static_cast<Rank>(addresses.size());
      rank.transport = MakeInprocTransport(hub, {.region_bytes = 1 << 20}).value();
      addresses.push_back(rank.transport->Address().value());
    }
    for (StagedRank& rank : ranks_) {
      EXPECT_EQ(rank.transport->Connect(rank.rank, addresses, absl::InfiniteFuture()), absl::OkStatus());
      StagedOptions options = {.cuda = &FakeCuda::Table(), .transport = rank.transport, .rank = rank.rank};
      for (Rank peer = 0; peer < size; ++peer) options.peers.push_back({.world_rank = peer, .number = kNumber});
      rank.staged = MakeStagedTransport(std::move(options)).value();
      EXPECT_EQ(FakeCuda::Table().create_stream(&rank.stream), kCudaSuccess);
    }
  }
  ~StagedWorld() {
    for (StagedRank& rank : ranks_) FakeCuda::Table().destroy_stream(rank.stream);
  }

  StagedRank& At(Rank rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  void OnEveryRank(const std::function<void(StagedRank&)>& body) {
    std::vector<std::thread> threads;
    for (StagedRank& rank : ranks_) threads.emplace_back([&] { body(rank); });
    for (std::thread& thread : threads) thread.join();
  }

 private:
  std::vector<StagedRank> ranks_;
};

NativeCall SendOf(const FakeMemory& memory, std::int64_t bytes, Rank to) {
  return {.collective = Collective::kSend, .dtype = DType::kU8, .count = bytes, .root = to, .src = memory.data()};
}
NativeCall RecvOf(const FakeMemory& memory, std::int64_t bytes, Rank from) {
  return {.collective = Collective::kRecv, .dtype = DType::kU8, .count = bytes, .root = from, .dst = memory.data()};
}

std::byte ByteOf(Rank from, int message, std::int64_t i) {
  return static_cast<std::byte>((static_cast<std::uint64_t>(i) * 2654435761u >> 7) + static_cast<unsigned>(from) * 59 +
                                static_cast<unsigned>(message) * 101);
}
void Fill(const FakeMemory& memory, std::int64_t bytes, Rank from, int message) {
  for (std::int64_t i = 0; i < bytes; ++i) memory.data()[i] = ByteOf(from, message, i);
}
bool Holds(const FakeMemory& memory, std::int64_t bytes, Rank from, int message) {
  std::int64_t i = 0;
  while (i < bytes && memory.data()[i] == ByteOf(from, message, i)) ++i;
  return i == bytes;
}

TEST(StagedTransportTest, SegmentsShrinkInLargeGroups) {
  EXPECT_EQ(staged::SegmentBytes(2), 512 << 10);
  EXPECT_EQ(staged::SegmentBytes(65), 64 << 10);
  EXPECT_EQ(staged::SegmentBytes(5000), 16 << 10);
}

// Lengths on both sides of the segment's, and of all slots together; the group ends on both ranks at once.
TEST(StagedTransportTest, MessagesOfEveryLengthGoBothWays) {
  StagedWorld world(2);
  const std::int64_t segment = staged::SegmentBytes(2);
  for (const std::int64_t bytes : {std::int64_t{0}, std::int64_t{1}, segment - 1, segment, segment + 1, 4 * segment,
                                   4 * segment + 1, 11 * segment + 77}) {
    world.OnEveryRank([&](StagedRank& rank) {
      const FakeMemory mine(0, bytes);
      const FakeMemory theirs(0, bytes);
      Fill(mine, bytes, rank.rank, 0);
      ASSERT_EQ(rank.Move({SendOf(mine, bytes, 1 - rank.rank), RecvOf(theirs, bytes, 1 - rank.rank)}),
                absl::OkStatus());
      EXPECT_TRUE(Holds(theirs, bytes, 1 - rank.rank, 0)) << bytes;
    });
  }
}

// Several messages between two ranks meet in their order; messages with all ranks travel at the same time, in groups
// that follow each other at once.
TEST(StagedTransportTest, ManyMessagesAtOnce) {
  constexpr int kSize = 4;
  constexpr int kMessages = 3;
  StagedWorld world(kSize);
  world.OnEveryRank([&](StagedRank& rank) {
    const std::int64_t bytes = 5 * staged::SegmentBytes(kSize) + 3;
    for (int round = 0; round < 3; ++round) {
      std::vector<std::unique_ptr<FakeMemory>> memories;
      std::vector<NativeCall> calls;
      struct Expected {
        const FakeMemory* memory;
        Rank from;
        int message;
      };
      std::vector<Expected> expected;
      for (int message = 0; message < kMessages; ++message) {
        for (Rank peer = 0; peer < kSize; ++peer) {
          if (peer == rank.rank) continue;
          memories.push_back(std::make_unique<FakeMemory>(0, bytes));
          Fill(*memories.back(), bytes, rank.rank, message);
          calls.push_back(SendOf(*memories.back(), bytes, peer));
          memories.push_back(std::make_unique<FakeMemory>(0, bytes));
          calls.push_back(RecvOf(*memories.back(), bytes, peer));
          expected.push_back({memories.back().get(), peer, message});
        }
      }
      ASSERT_EQ(rank.Move(calls), absl::OkStatus());
      for (const Expected& each : expected) {
        EXPECT_TRUE(Holds(*each.memory, bytes, each.from, each.message)) << each.from << " " << each.message;
      }
    }
  });
}

// Each rank sends a long message to the next one and receives one from the rank before: nobody's slots are taken by a
// message that waits.
TEST(StagedTransportTest, ACircleOfLongMessages) {
  constexpr int kSize = 3;
  StagedWorld world(kSize);
  world.OnEveryRank([&](StagedRank& rank) {
    const std::int64_t bytes = 20 * staged::SegmentBytes(kSize);
    const Rank next = (rank.rank + 1) % kSize;
    const Rank before = (rank.rank + 2) % kSize;
    const FakeMemory a(0, bytes);
    const FakeMemory b(0, bytes);
    const FakeMemory c(0, bytes);
    const FakeMemory d(0, bytes);
    Fill(a, bytes, rank.rank, 0);
    Fill(b, bytes, rank.rank, 1);
    // The order of the list is another one on every rank.
    ASSERT_EQ(
        rank.Move({SendOf(a, bytes, next), RecvOf(c, bytes, next), SendOf(b, bytes, before), RecvOf(d, bytes, before)}),
        absl::OkStatus());
    EXPECT_TRUE(Holds(c, bytes, next, 1));
    EXPECT_TRUE(Holds(d, bytes, before, 0));
  });
}

// The ends differ in the length of a message, and the hashes of both lengths in the tags are equal. What the receive of
// two segments has got is the beginning of a longer message: the receive must not end.
TEST(StagedTransportTest, TheBeginningOfALongerMessageIsNotAMessage) {
  StagedWorld world(2);
  constexpr std::int64_t kSent = 27787264;
  constexpr std::int64_t kReceived = 1048576;
  ASSERT_EQ(kReceived % staged::SegmentBytes(2), 0);
  const FakeMemory sent(0, kSent);
  const FakeMemory received(0, kReceived);
  StagedRank& a = world.At(0);
  StagedRank& b = world.At(1);
  ASSERT_EQ(a.staged->Enqueue({SendOf(sent, kSent, 1)}, a.stream), absl::OkStatus());
  ASSERT_EQ(b.staged->Enqueue({RecvOf(received, kReceived, 0)}, b.stream), absl::OkStatus());
  for (int round = 0; round < 20; ++round) {
    { const FakeMemory waits_for_the_copies(0, 1); }
    ASSERT_EQ(a.staged->Ready().value(), false);
    ASSERT_EQ(b.staged->Ready().value(), false) << "round " << round;
  }
  EXPECT_EQ(a.staged->Abort(absl::AbortedError("enough"), absl::Now()), absl::OkStatus());
  EXPECT_EQ(b.staged->Abort(absl::AbortedError("enough"), absl::Now()), absl::OkStatus());
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  while (!a.staged->Unfinished().empty() && absl::Now() < deadline) b.transport->Check();
  EXPECT_TRUE(a.staged->Unfinished().empty());
  EXPECT_TRUE(b.staged->Unfinished().empty());
}

// Pinned memory does not grow with the messages.
TEST(StagedTransportTest, SlotsAreAllocatedOnce) {
  StagedWorld world(2);
  const std::int64_t bytes = 30 * staged::SegmentBytes(2);
  const FakeMemory a(0, bytes);
  const FakeMemory b(0, bytes);
  const auto exchange = [&] {
    world.OnEveryRank([&](StagedRank& rank) {
      ASSERT_EQ(rank.Move({rank.rank == 0 ? SendOf(a, bytes, 1) : RecvOf(b, bytes, 0)}), absl::OkStatus());
    });
  };
  const FakeCudaCounts before = FakeCuda::Counts();
  exchange();
  EXPECT_EQ((FakeCuda::Counts() - before).allocations, 2) << "the slots of a pipe on each rank";
  exchange();
  EXPECT_EQ((FakeCuda::Counts() - before).allocations, 2);
}

// The copies of a group begin after what is on the stream before, and what follows on the stream comes after them.
TEST(StagedTransportTest, GroupsHaveTheirPlaceOnTheStream) {
  StagedWorld world(2);
  world.OnEveryRank([](StagedRank& rank) {
    const FakeMemory memory(0, 64);
    for (int round = 0; round < 20; ++round) {
      if (rank.rank == 0) {
        ASSERT_EQ(FakeCuda::Launch(rank.stream,
                                   [&] {
                                     absl::SleepFor(absl::Milliseconds(1));
                                     std::fill_n(memory.data(), 64, static_cast<std::byte>(round));
                                   }),
                  kCudaSuccess);
      }
      ASSERT_EQ(rank.staged->Enqueue({rank.rank == 0 ? SendOf(memory, 64, 1) : RecvOf(memory, 64, 0)}, rank.stream),
                absl::OkStatus());
      while (!rank.staged->Ready().value()) std::this_thread::yield();
      std::byte seen{0xff};
      ASSERT_EQ(FakeCuda::Launch(rank.stream, [&] { seen = memory.data()[63]; }), kCudaSuccess);
      ASSERT_EQ(FakeCuda::Table().synchronize_stream(rank.stream), kCudaSuccess);
      EXPECT_EQ(seen, static_cast<std::byte>(round));
    }
  });
}

TEST(StagedTransportTest, WhatIsRefusedLeavesNothingBehind) {
  StagedWorld world(2);
  const StagedRank& rank = world.At(0);
  const FakeMemory memory(0, 64);
  const auto code_of = [&](const NativeCall& call) { return rank.staged->Enqueue({call}, rank.stream).code(); };
  EXPECT_EQ(code_of({.collective = Collective::kAllReduce, .count = 1, .src = memory.data(), .dst = memory.data()}),
            absl::StatusCode::kUnimplemented);
  EXPECT_EQ(code_of(SendOf(memory, 64, 0)), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of(SendOf(memory, 64, 2)), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of(SendOf(memory, -1, 1)), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of({.collective = Collective::kRecv, .count = 1, .root = 1}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(rank.staged->Enqueue({RecvOf(memory, 64, 1)}, rank.stream), absl::OkStatus());
  EXPECT_EQ(rank.staged->Ready().value(), false);
  EXPECT_EQ(code_of(RecvOf(memory, 64, 1)), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(rank.staged->Abort(absl::AbortedError("enough"), absl::Now()), absl::OkStatus());
  EXPECT_TRUE(rank.staged->Unfinished().empty()) << "a receive that was discarded ends at once";
}

// After Abort the messages come back, those that the peer has never asked for too once it aborts as well.
TEST(StagedTransportTest, AbortedMessagesComeBack) {
  StagedWorld world(2);
  const std::int64_t bytes = 9 * staged::SegmentBytes(2);
  const FakeMemory memory(0, bytes);
  const FakeMemory other(0, bytes);
  StagedRank& a = world.At(0);
  StagedRank& b = world.At(1);
  ASSERT_EQ(a.staged->Enqueue({SendOf(memory, bytes, 1), RecvOf(other, bytes, 1)}, a.stream), absl::OkStatus());
  { const FakeMemory waits_for_the_copies(0, 1); }
  ASSERT_EQ(a.staged->Ready().value(), false);  // and the slots are sent
  ASSERT_EQ(a.staged->Abort(absl::AbortedError("enough"), absl::Now()), absl::OkStatus());
  EXPECT_EQ(a.staged->Ready().status().message(), "enough");
  EXPECT_EQ(a.staged->Unfinished(), std::vector<Rank>{1}) << "rank 1 has not taken the messages";
  ASSERT_EQ(b.staged->Abort(absl::AbortedError("enough, too"), absl::Now()), absl::OkStatus());
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  while (!a.staged->Unfinished().empty() && absl::Now() < deadline) b.transport->Check();
  EXPECT_TRUE(a.staged->Unfinished().empty());
  EXPECT_EQ(FakeCuda::Table().synchronize_stream(a.stream), kCudaSuccess) << "the stream waits for no message";
  EXPECT_EQ(a.staged->Enqueue({}, a.stream).message(), "enough");
}

TEST(StagedTransportTest, ARankThatIsLostIsNamed) {
  StagedWorld world(2);
  const FakeMemory memory(0, 64);
  StagedRank& a = world.At(0);
  ASSERT_EQ(a.staged->Enqueue({RecvOf(memory, 64, 1)}, a.stream), absl::OkStatus());
  world.At(1).transport->Shutdown(absl::InternalError("rank 1 is broken"));
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  absl::StatusOr<bool> ready = false;
  while (ready.ok() && absl::Now() < deadline) {
    a.transport->Check();
    ready = a.staged->Ready();
  }
  EXPECT_THAT(std::string(ready.status().message()), HasSubstr("rank 1 is broken"));
  EXPECT_EQ(a.staged->Abort(ready.status(), absl::Now()), absl::OkStatus());
  EXPECT_TRUE(a.staged->Unfinished().empty());
}

TEST(StagedTransportTest, TheNumberIsGivenBack) {
  StagedWorld world(1);
  int given_back = 0;
  StagedOptions options = {.cuda = &FakeCuda::Table(), .transport = world.At(0).transport, .rank = 0};
  options.peers = {{.world_rank = 0, .number = 5}};
  options.give_number_back = [&] { ++given_back; };
  std::unique_ptr<NativeTransport> staged = MakeStagedTransport(std::move(options)).value();
  EXPECT_EQ(staged->name(), "staged");
  EXPECT_EQ(staged->Finalize(absl::Now()), absl::OkStatus());
  EXPECT_EQ(given_back, 0);
  staged.reset();
  EXPECT_EQ(given_back, 1);
}

}  // namespace
}  // namespace tutti
