// Communicator::Group: groups that their members alone make.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/harness/rank_barrier.h"
#include "tests/harness/world.h"

namespace tutti {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class GroupTest : public ::testing::TestWithParam<std::string> {
 protected:
  WorldOptions options(absl::Duration timeout = absl::Seconds(60)) const {
    // The arena has room for some forty control blocks: less than one for every group of the test.
    return {.transport = GetParam(), .communicator = {.timeout = timeout}, .region_bytes = 24 << 20};
  }
};

std::int64_t SumOfWorldRanks(Communicator& group, Rank world_rank) {
  std::int64_t sum = world_rank;
  EXPECT_EQ(group.AllReduce(&sum, &sum, 1, DType::kI64, ReduceOp::kSum).Wait(), absl::OkStatus());
  return sum;
}

TEST_P(GroupTest, HasItsMembersInTheOrderGiven) {
  RunWorld(4, options(), [](Communicator& world) {
    if (world.rank() == 1) return;  // rank 1 is no member and makes no call
    absl::StatusOr<std::unique_ptr<Communicator>> group = world.Group({3, 0, 2}, "odd order");
    ASSERT_TRUE(group.ok()) << group.status();
    EXPECT_EQ((*group)->size(), 3);
    EXPECT_EQ((*group)->rank(), world.rank() == 3 ? 0 : world.rank() == 0 ? 1 : 2);
    EXPECT_EQ(SumOfWorldRanks(**group, world.rank()), 5);
    std::vector<std::int64_t> ranks(3);
    const std::int64_t mine = world.rank();
    ASSERT_EQ((*group)->AllGather(&mine, ranks.data(), 1, DType::kI64).Wait(), absl::OkStatus());
    EXPECT_EQ(ranks, (std::vector<std::int64_t>{3, 0, 2}));
  });
}

TEST_P(GroupTest, MayBeMadeAgainUnderOneName) {
  RunWorld(3, options(), [](Communicator& world) {
    if (world.rank() == 0) return;
    for (int round = 0; round < 200; ++round) {
      absl::StatusOr<std::unique_ptr<Communicator>> group = world.Group({1, 2}, "again");
      ASSERT_TRUE(group.ok()) << group.status();
      ASSERT_EQ(SumOfWorldRanks(**group, world.rank()), 3) << round;
    }
  });
}

// Rank 1 is in both groups, which two threads make in any order.
TEST_P(GroupTest, MayBeMadeBySeveralThreadsAtOnce) {
  RunWorld(3, options(), [](Communicator& world) {
    std::vector<std::thread> threads;
    for (const std::vector<Rank>& members : {std::vector<Rank>{0, 1}, {1, 2}, {0, 1, 2}, {2, 1, 0}}) {
      if (std::find(members.begin(), members.end(), world.rank()) == members.end()) continue;
      threads.emplace_back([&world, members] {
        std::int64_t expected = 0;
        for (const Rank member : members) expected += member;
        for (int round = 0; round < 20; ++round) {
          absl::StatusOr<std::unique_ptr<Communicator>> group = world.Group(members, absl::StrCat("round ", round));
          ASSERT_TRUE(group.ok()) << group.status();
          ASSERT_EQ(SumOfWorldRanks(**group, world.rank()), expected);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
}

TEST_P(GroupTest, MayBeOfOneRankAndOfAGroup) {
  RunWorld(4, options(), [](Communicator& world) {
    absl::StatusOr<std::unique_ptr<Communicator>> alone = world.Group({world.rank()}, "alone");
    ASSERT_TRUE(alone.ok()) << alone.status();
    EXPECT_EQ(SumOfWorldRanks(**alone, world.rank()), world.rank());
    absl::StatusOr<std::unique_ptr<Communicator>> half = world.Split(world.rank() % 2, -world.rank());
    ASSERT_TRUE(half.ok()) << half.status();
    absl::StatusOr<std::unique_ptr<Communicator>> both = (*half)->Group({1, 0}, "turned back");
    ASSERT_TRUE(both.ok()) << both.status();
    EXPECT_EQ((*both)->rank(), world.rank() / 2);
    EXPECT_EQ(SumOfWorldRanks(**both, world.rank()), world.rank() % 2 == 0 ? 2 : 4);
  });
}

TEST_P(GroupTest, RefusesMembersThatMakeNoSense) {
  RunWorld(2, options(), [](Communicator& world) {
    const auto error_of = [&](const std::vector<Rank>& members) {
      const absl::Status status = world.Group(members, "wrong").status();
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
      return std::string(status.message());
    };
    EXPECT_THAT(error_of({0, 1, 2}), HasSubstr("rank 2 must be in 0…1"));
    EXPECT_THAT(error_of({-1, 0, 1}), HasSubstr("rank -1 must be in 0…1"));
    EXPECT_THAT(error_of({0, 1, 0}), HasSubstr("rank 0 is named twice"));
    EXPECT_THAT(error_of({1 - world.rank()}), HasSubstr("the rank that calls must be among them"));
    EXPECT_THAT(error_of({}), HasSubstr("Group: members is empty"));
    EXPECT_EQ(world.Barrier().Wait(), absl::OkStatus());
  });
}

TEST_P(GroupTest, NamesAMemberThatDoesNotComeAndHarmsNobody) {
  RunWorldWithLittleTime(3, options(absl::Seconds(1)), [](Communicator& world, RankBarrier& ranks) {
    if (!ranks.AllOk(absl::OkStatus())) return;  // ranks 0 and 2 go on at the same time
    if (world.rank() != 1) {
      const absl::Status status = world.Group({1, 2, 0}, "one is missing").status();
      EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
      EXPECT_THAT(std::string(status.message()),
                  AllOf(HasSubstr(absl::StrCat("Group 'one is missing' of ranks 1, 2, 0: rank 1 has not come within ",
                                               absl::FormatDuration(world.timeout()), "; ")),
                        HasSubstr("the same members, in the same order, and with the same name")));
    }
    EXPECT_EQ(world.Barrier({.timeout = absl::Seconds(60)}).Wait(), absl::OkStatus());
    absl::StatusOr<std::unique_ptr<Communicator>> group = world.Group({0, 1, 2}, "all have come");
    if (!ranks.AllOk(group.status())) return;
    EXPECT_EQ(SumOfWorldRanks(**group, world.rank()), 3);
  });
}

TEST_P(GroupTest, NamesAMemberThatHasLeft) {
  RunWorld(3, options(), [](Communicator& world) {
    if (world.rank() != 0) return;
    const absl::Time start = absl::Now();
    const absl::Status status = world.Group({0, 2}, "with a leaver").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 2 is gone"));
    EXPECT_LT(absl::Now() - start, absl::Seconds(30));
  });
}

INSTANTIATE_TEST_SUITE_P(, GroupTest, ::testing::ValuesIn(WorldTransports()),
                         [](const auto& transport) { return transport.param; });

}  // namespace
}  // namespace tutti
