// Groups that are made, used and dropped while others go on: memory of a group that peers may still read is not used
// again too early, and neither memory nor numbers are used up.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/harness/world.h"
#include "tutti/schedule.h"

namespace tutti {
namespace {

constexpr CallOptions kInline = {.caller_drives = true};

class CommunicatorGroupsTest : public ::testing::TestWithParam<std::string> {
 protected:
  // The arena has room for some forty control blocks: less than one for every group of the test.
  WorldOptions options() const {
    return {.transport = GetParam(), .communicator = {.timeout = absl::Seconds(60)}, .region_bytes = 24 << 20};
  }
};

std::unique_ptr<Communicator> NewGroup(Communicator& comm) {
  absl::StatusOr<std::unique_ptr<Communicator>> group = comm.Split(0, comm.rank());
  EXPECT_TRUE(group.ok()) << group.status();
  return group.ok() ? *std::move(group) : nullptr;
}

void ExpectSum(Communicator& comm, int round) {
  std::vector<float> values(16, static_cast<float>(comm.rank() + round));
  ASSERT_EQ(comm.AllReduce(values.data(), values.data(), 16, DType::kF32, ReduceOp::kSum, kInline).Wait(),
            absl::OkStatus())
      << "round " << round;
  const int sum = comm.size() * (comm.size() - 1) / 2 + comm.size() * round;
  ASSERT_EQ(values, std::vector<float>(16, static_cast<float>(sum))) << "round " << round;
}

TEST_P(CommunicatorGroupsTest, AGroupUsedOnceAndDroppedCostsNothing) {
  for (const int size : {2, 3}) {
    RunWorld(size, options(), [](Communicator& world) {
      for (int round = 0; round < 400; ++round) {
        const std::unique_ptr<Communicator> group = NewGroup(world);
        ASSERT_NE(group, nullptr);
        ASSERT_NO_FATAL_FAILURE(ExpectSum(*group, round));
      }
    });
  }
}

TEST_P(CommunicatorGroupsTest, SomeRanksDropEarlyAndOthersLate) {
  RunWorld(3, options(), [](Communicator& world) {
    std::vector<std::unique_ptr<Communicator>> kept;
    for (int round = 0; round < 200; ++round) {
      kept.push_back(NewGroup(world));
      ASSERT_NE(kept.back(), nullptr);
      ASSERT_NO_FATAL_FAILURE(ExpectSum(*kept.back(), round));
      ASSERT_NO_FATAL_FAILURE(ExpectSum(*kept.front(), round));
      // The number of groups that a rank keeps, and the order in which it drops them, differ between the ranks.
      if (kept.size() > 1 + 3 * static_cast<std::size_t>(world.rank())) kept.erase(kept.begin() + 1);
      if (round % 50 == 49 && world.rank() == 1) std::reverse(kept.begin() + 1, kept.end());
    }
  });
}

TEST_P(CommunicatorGroupsTest, WhatIsAllocatedAfterAGroupIsNobodyElses) {
  RunWorld(2, options(), [](Communicator& world) {
    for (int round = 0; round < 50; ++round) {
      {
        const std::unique_ptr<Communicator> group = NewGroup(world);
        ASSERT_NE(group, nullptr);
        for (int call = 0; call <= round % 4; ++call) ASSERT_NO_FATAL_FAILURE(ExpectSum(*group, call));
      }
      // This buffer would get the memory of the group's control block and scratch, if these came back too early.
      absl::StatusOr<Buffer> buffer = world.Allocate(1 << 20);
      ASSERT_TRUE(buffer.ok()) << buffer.status();
      std::fill_n(buffer->data(), buffer->bytes(), std::byte{0xff});
      ASSERT_NO_FATAL_FAILURE(ExpectSum(world, round));
      ASSERT_TRUE(std::all_of(buffer->data(), buffer->data() + buffer->bytes(),
                              [](std::byte b) { return b == std::byte{0xff}; }));
    }
  });
}

TEST_P(CommunicatorGroupsTest, ACallOnAGroupThatAPeerHasLeftMeetsNoOtherGroup) {
  RunWorld(2, options(), [](Communicator& world) {
    std::unique_ptr<Communicator> left = NewGroup(world);
    ASSERT_NO_FATAL_FAILURE(ExpectSum(*left, 1));
    if (world.rank() == 0) left.reset();
    // Rank 0's block of the group that it has left serves the next ones, in which it makes the same calls.
    std::vector<std::unique_ptr<Communicator>> next;
    for (int group = 0; group < 4; ++group) {
      next.push_back(NewGroup(world));
      for (int call = 0; call < 3; ++call) ASSERT_NO_FATAL_FAILURE(ExpectSum(*next.back(), call));
    }
    float value = 1;
    const absl::Status status =
        (world.rank() == 1 ? *left : world).AllReduce(&value, &value, 1, DType::kF32, ReduceOp::kSum, kInline).Wait();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << "rank " << world.rank() << ": " << status;
  });
}

TEST_P(CommunicatorGroupsTest, CallsOfManySizesShareTheArena) {
  RunWorld(2, {.transport = GetParam(), .region_bytes = 64 << 20}, [](Communicator& world) {
    // These buffers in ordinary memory are staged; all of them together are 50 times as large as the arena.
    std::vector<float> values(4'000'000 + 64'000);
    for (std::int64_t i = 0; i < 60; ++i) {
      const std::int64_t count = 4'000'000 + 1000 * i;
      std::fill_n(values.begin(), count, 1.0f);
      ASSERT_EQ(world.AllReduce(values.data(), values.data(), count, DType::kF32, ReduceOp::kSum, kInline).Wait(),
                absl::OkStatus())
          << i;
      ASSERT_EQ(values[static_cast<std::size_t>(count - 1)], 2.0f);
    }
  });
}

TEST_P(CommunicatorGroupsTest, WantOfMemoryOnOneRankEndsTheCallOnAll) {
  RunWorld(3, {.transport = GetParam(), .region_bytes = 64 << 20}, [](Communicator& world) {
    constexpr std::int64_t kCount = 4 << 20;  // 16 MB
    std::vector<float> in(kCount, 1.0f);
    std::vector<float> out(kCount);
    // A schedule by which peers reach the buffers, which are therefore copied whole.
    const CallOptions direct = {.schedule = *FindSchedule(Collective::kAllReduce, "direct"), .caller_drives = true};
    const auto sum = [&] {
      return world.AllReduce(in.data(), out.data(), kCount, DType::kF32, ReduceOp::kSum, direct).Wait();
    };
    absl::StatusOr<Buffer> hog;
    if (world.rank() == 1) {
      hog = world.Allocate(48 << 20);
      ASSERT_TRUE(hog.ok()) << hog.status();
    }
    for (int call = 0; call < 10; ++call) {
      const absl::Status status = sum();
      EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << "rank " << world.rank() << ": " << status;
      // The group goes on.
      ASSERT_NO_FATAL_FAILURE(ExpectSum(world, call));
    }
    if (hog.ok()) *hog = Buffer();
    ASSERT_EQ(sum(), absl::OkStatus());
    EXPECT_EQ(out, std::vector<float>(kCount, 3.0f));
  });
}

TEST_P(CommunicatorGroupsTest, ASplitThatEndsForWantOfMemoryUsesNothingUp) {
  RunWorld(5, options(), [](Communicator& world) {
    std::vector<Buffer> hog;
    for (std::int64_t bytes = 16 << 20; world.rank() == 1 && bytes >= 64; bytes /= 2) {
      for (absl::StatusOr<Buffer> more = world.Allocate(bytes); more.ok(); more = world.Allocate(bytes)) {
        hog.push_back(*std::move(more));
      }
    }
    // The other ranks have room and open a control block each time: if these were lost, 60 would not fit.
    for (int round = 0; round < 60; ++round) {
      const absl::Status status = world.Split(0, world.rank()).status();
      ASSERT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << "rank " << world.rank() << ": " << status;
    }
    hog.clear();
    const std::unique_ptr<Communicator> group = NewGroup(world);
    ASSERT_NE(group, nullptr);
    ASSERT_NO_FATAL_FAILURE(ExpectSum(*group, 1));
  });
}

// The schedules that a user has named need mapped memory, or several nodes: they are for the user's calls.
TEST_P(CommunicatorGroupsTest, AreMadeWhateverSchedulesAreNamed) {
  for (const char* const schedules : {"all_gather=direct,barrier=direct", "all_gather=hierarchical"}) {
    WorldOptions unmapped = options();
    unmapped.communicator.mapping = CommunicatorOptions::Mapping::kNever;
    unmapped.communicator.schedules = schedules;
    RunWorld(2, unmapped, [&](Communicator& world) {
      const std::unique_ptr<Communicator> group = NewGroup(world);
      ASSERT_NE(group, nullptr);
      ASSERT_NO_FATAL_FAILURE(ExpectSum(*group, 1));
      const absl::StatusOr<std::unique_ptr<Communicator>> other = world.Group({0, 1}, "other");
      ASSERT_TRUE(other.ok()) << other.status();
      ASSERT_NO_FATAL_FAILURE(ExpectSum(**other, 1));
      std::int32_t values[2] = {};
      const auto gather = [&](const CallOptions& call) {
        return world.AllGather(&values[world.rank()], values, 1, DType::kI32, call).Wait();
      };
      EXPECT_EQ(gather({}).code(), absl::StatusCode::kUnimplemented);
      EXPECT_EQ(gather({.schedule = &kSelectorsChoice}), absl::OkStatus());
    });
  }
}

INSTANTIATE_TEST_SUITE_P(, CommunicatorGroupsTest, ::testing::ValuesIn(WorldTransports()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace tutti
