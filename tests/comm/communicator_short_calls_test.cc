// Short calls whose callers drive: the thread that makes such a call takes the steps itself, in the plan's order, until
// a peer is late.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "engine/control_block.h"
#include "tests/harness/world.h"
#include "tutti/communicator.h"
#include "tutti/schedule.h"
#include "tutti/schedules/mapped_peers.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

constexpr CallOptions kInline = {.caller_drives = true};

// The sum of rank + `mine` over all ranks.
absl::StatusOr<float> Sum(Communicator& comm, float mine, const CallOptions& options = kInline) {
  float value = static_cast<float>(comm.rank()) + mine;
  absl::Status status = comm.AllReduce(&value, &value, 1, DType::kF32, ReduceOp::kSum, options).Wait();
  if (!status.ok()) return status;
  return value;
}

float SumOver(int size, float each) {
  return static_cast<float>(size * (size - 1)) / 2 + static_cast<float>(size) * each;
}

class ShortCallsTest : public ::testing::TestWithParam<int> {};

TEST_P(ShortCallsTest, OfSeveralThreadsEachInItsOwnGroup) {
  constexpr int kThreads = 4;
  RunWorld(GetParam(), [](Communicator& world) {
    std::vector<std::unique_ptr<Communicator>> groups;
    for (int thread = 0; thread < kThreads; ++thread) groups.push_back(world.Split(0, world.rank()).value());
    std::vector<std::thread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        Communicator& group = *groups[static_cast<std::size_t>(thread)];
        for (int call = 0; call < 300; ++call) {
          const auto each = static_cast<float>(thread + call);
          const absl::StatusOr<float> sum = Sum(group, each);
          ASSERT_TRUE(sum.ok()) << sum.status();
          ASSERT_EQ(*sum, SumOver(group.size(), each)) << "thread " << thread << " call " << call;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
}

TEST_P(ShortCallsTest, OfRanksThatComeAtAnyTime) {
  RunWorld(GetParam(), [](Communicator& world) {
    for (int call = 0; call < 300; ++call) {
      // Sometimes this rank is first, sometimes last, and sometimes long after the others.
      const int late = (call + world.rank()) % 5;
      for (int pause = 0; pause < late * 3; ++pause) std::this_thread::yield();
      const absl::StatusOr<float> sum = Sum(world, static_cast<float>(call), {.caller_drives = call % 7 != 0});
      ASSERT_TRUE(sum.ok()) << sum.status();
      ASSERT_EQ(*sum, SumOver(world.size(), static_cast<float>(call))) << "call " << call;
    }
  });
}

TEST_P(ShortCallsTest, BesideALongOneThatNobodyWaitsFor) {
  constexpr std::int64_t kCount = 1 << 20;
  RunWorld(GetParam(), [](Communicator& world) {
    const std::unique_ptr<Communicator> group = world.Split(0, world.rank()).value();
    std::vector<float> longer(kCount, 1);
    Work work = world.AllReduce(longer.data(), longer.data(), kCount, DType::kF32, ReduceOp::kSum);
    for (int call = 0; call < 50; ++call) {
      const absl::StatusOr<float> sum = Sum(*group, 1);
      ASSERT_TRUE(sum.ok()) << sum.status();
      ASSERT_EQ(*sum, SumOver(world.size(), 1)) << "call " << call;
    }
    ASSERT_EQ(work.Wait(), absl::OkStatus());
    EXPECT_EQ(longer.front(), static_cast<float>(world.size()));
    EXPECT_EQ(longer.back(), static_cast<float>(world.size()));
  });
}

TEST_P(ShortCallsTest, ThatDifferAreErrorsOfAllRanks) {
  RunWorld(GetParam(), [](Communicator& world) {
    float value[2] = {};
    const absl::Status status =
        world.AllReduce(value, value, world.rank() == 0 ? 1 : 2, DType::kF32, ReduceOp::kSum, kInline).Wait();
    EXPECT_THAT(status.message(), HasSubstr("count="));
    EXPECT_FALSE(Sum(world, 1).ok());
  });
}

TEST_P(ShortCallsTest, EndWhenAnotherThreadAborts) {
  RunWorld(GetParam(), [](Communicator& world) {
    std::atomic<int> calls = 0;
    std::thread aborter([&] {
      while (calls.load() < 100) std::this_thread::yield();
      if (world.rank() == 0) world.Abort(absl::AbortedError("enough"));
    });
    absl::StatusOr<float> sum = 0;
    for (; sum.ok(); ++calls) {
      sum = Sum(world, 1);
      if (sum.ok()) {
        ASSERT_EQ(*sum, SumOver(world.size(), 1));
      }
    }
    aborter.join();
    EXPECT_THAT(sum.status().message(), HasSubstr("enough"));
    EXPECT_GE(calls.load(), 100);
  });
}

TEST_P(ShortCallsTest, TellTheBytesThatTheyMoveAndWhenTheyEnded) {
  RunWorld(GetParam(), [](Communicator& world) {
    float value = 1;
    Work work = world.AllReduce(&value, &value, 1, DType::kF32, ReduceOp::kSum, {.caller_drives = true, .timed = true});
    ASSERT_EQ(work.Wait(), absl::OkStatus());
    EXPECT_TRUE(work.done());
    EXPECT_GT(work.end_nanos(), 0);
    EXPECT_EQ(work.wire_bytes(), world.counters().wire_bytes);
  });
}

static_assert(schedules::kLaneBytes == kLaneScratchBytes, "eager copies must find room in the lane");

// A root that needs nothing from the others goes on before they have come: they find what it has copied for them.
TEST_P(ShortCallsTest, EagerRootsGoOnBeforeTheirPeersHaveCome) {
  if (GetParam() == 1) GTEST_SKIP() << "no peers";
  constexpr int kCalls = 6;
  std::atomic<bool> root_is_through{false};
  RunWorld(GetParam(), [&](Communicator& world) {
    const auto call = [&](Collective collective, float* in, float* out) {
      const CallOptions options = {.schedule = *FindSchedule(collective, "eager"), .caller_drives = true};
      return world.Call({.collective = collective, .count = 3}, in, out, options).Wait();
    };
    if (world.rank() != 0) root_is_through.wait(false);
    for (int i = 0; i < kCalls; ++i) {
      std::vector<float> blocks(static_cast<std::size_t>(3 * world.size()));
      for (std::size_t at = 0; at < blocks.size(); ++at) blocks[at] = static_cast<float>(i + 10 * (at / 3));
      const bool scatters = i % 2 == 0;
      float mine[3] = {};
      float* const in = scatters || world.rank() == 0 ? blocks.data() : mine;
      EXPECT_EQ(
          call(scatters ? Collective::kScatter : Collective::kBroadcast, in, scatters || world.rank() != 0 ? mine : in),
          absl::OkStatus());
      const float* const result = scatters || world.rank() != 0 ? mine : in;
      EXPECT_EQ(result[2], static_cast<float>(i + (scatters ? 10 * world.rank() : 0)));
    }
    if (world.rank() == 0) {
      root_is_through = true;
      root_is_through.notify_all();
    }
    ASSERT_EQ(world.Barrier().Wait(), absl::OkStatus());
  });
}

// A root that waits for nobody must not go on for ever when nobody is left.
TEST_P(ShortCallsTest, EagerRootsHearOfPeersThatHaveLeft) {
  RunWorld(GetParam(), [](Communicator& world) {
    if (world.rank() == world.size() - 1) return;
    const CallOptions eager = {.schedule = *FindSchedule(Collective::kBroadcast, "eager"), .caller_drives = true};
    const absl::Time end = absl::Now() + absl::Seconds(30);
    absl::Status status;
    float data[3] = {};
    while (status.ok() && absl::Now() < end) status = world.Broadcast(data, data, 3, DType::kF32, 0, eager).Wait();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("rank ", world.size() - 1, " has left")));
  });
}

// A root that has made as many calls as it may without a late rank is told of a third rank that has left, although the
// late rank never comes.
TEST(ShortCallsOfALateRankTest, HearOfAnotherThatHasLeft) {
  constexpr int kCallsAhead = 2 * kLanes;
  std::atomic<bool> root_is_ahead = false;
  std::atomic<bool> root_is_told = false;
  const auto await = [](std::atomic<bool>& flag) { flag.wait(false); };
  const auto set = [](std::atomic<bool>& flag) {
    flag = true;
    flag.notify_all();
  };
  RunWorld(3, [&](Communicator& world) {
    if (world.rank() == 1) return await(root_is_told);
    if (world.rank() == 2) return await(root_is_ahead);
    const CallOptions eager = {.schedule = *FindSchedule(Collective::kBroadcast, "eager"),
                               .timeout = absl::Seconds(60)};
    float data[3] = {};
    for (int call = 0; call < kCallsAhead; ++call) {
      EXPECT_EQ(world.Broadcast(data, data, 3, DType::kF32, 0, eager).Wait(), absl::OkStatus());
    }
    Work work = world.Broadcast(data, data, 3, DType::kF32, 0, eager);
    set(root_is_ahead);
    const absl::Status status = work.Wait();
    set(root_is_told);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 2 has left"));
  });
}

// Two ranks that both take themselves for the root, at the same time, and wait for nobody: at least one sees the other.
TEST(ShortCallsOfTwoRootsTest, AreTold) {
  RunWorld(2, [](Communicator& world) {
    for (int round = 0; round < 200; ++round) {
      absl::StatusOr<std::unique_ptr<Communicator>> group = world.Group({0, 1}, absl::StrCat("round ", round));
      ASSERT_TRUE(group.ok()) << group.status();
      const CallOptions eager = {.schedule = *FindSchedule(Collective::kBroadcast, "eager"), .caller_drives = true};
      ASSERT_EQ((*group)->Barrier({.caller_drives = true}).Wait(), absl::OkStatus());
      float data[3] = {};
      const absl::Status first = (*group)->Broadcast(data, data, 3, DType::kF32, world.rank(), eager).Wait();
      const absl::Status next = (*group)->Barrier().Wait();
      EXPECT_TRUE(absl::IsInvalidArgument(first) || absl::IsInvalidArgument(next)) << first << ", " << next;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, ShortCallsTest, ::testing::Values(2, 3, 5));

}  // namespace
}  // namespace tutti
