// A rank that dies, or is stopped, ends the groups that it is in and no other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/harness/process_world.h"

namespace tutti {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr Rank kVictim = 1;

// Sums in `group` until one fails, or `times` times. Messages of `count` floats end only when the receiver takes them.
absl::Status Sums(Communicator& group, std::int64_t count, int times, const CallOptions& options = {}) {
  std::vector<float> values(static_cast<std::size_t>(count), 0.0f);
  for (int i = 0; i < times; ++i) {
    absl::Status status =
        group.AllReduce(values.data(), values.data(), count, DType::kF32, ReduceOp::kSum, options).Wait();
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

struct Case {
  std::string name;
  int ranks_per_node = 0;
  std::int64_t count = 0;
};

class GroupsOutliveRanksTest : public ::testing::TestWithParam<Case> {
 protected:
  // Ranks 0 and 2 have a group that the victim is not in, and all have the world, whose sums end with the victim.
  static void RunUntilTheVictimIs(int signal, absl::Duration timeout, const std::string& error) {
    const std::int64_t count = GetParam().count;
    ProcessWorld world(
        3, {.timeout = absl::Seconds(60)},
        [&](Communicator& comm, const ProcessWorld::Report& report) {
          std::unique_ptr<Communicator> pair;
          if (comm.rank() != kVictim) {
            absl::StatusOr<std::unique_ptr<Communicator>> made = comm.Group({0, 2}, "pair");
            if (!made.ok()) return report(made.status().ToString());
            pair = *std::move(made);
          }
          if (absl::Status status = Sums(comm, count, 3); !status.ok()) return report(status.ToString());
          report("at work");
          const absl::Status ended = Sums(comm, count, 1'000'000'000, {.timeout = timeout});
          report(ended.ToString());
          report(Sums(*pair, count, 20).ToString());
          absl::StatusOr<std::unique_ptr<Communicator>> next = comm.Group({2, 0}, "survivors");
          report(next.ok() ? Sums(**next, count, 20).ToString() : next.status().ToString());
          report(pair->status().ToString());
        },
        nullptr, GetParam().ranks_per_node);
    for (Rank rank = 0; rank < 3; ++rank) EXPECT_EQ(world.NextLine(rank), "at work");
    world.Signal(kVictim, signal);
    for (const Rank rank : {0, 2}) {
      EXPECT_THAT(world.NextLine(rank), AllOf(HasSubstr(error), HasSubstr("rank 1"))) << "rank " << rank;
    }
    for (const Rank rank : {0, 2}) {
      EXPECT_EQ(world.NextLine(rank), "OK") << "the group without the rank, on rank " << rank;
      EXPECT_EQ(world.NextLine(rank), "OK") << "a new group, on rank " << rank;
      EXPECT_EQ(world.NextLine(rank), "OK") << rank;
    }
  }
};

TEST_P(GroupsOutliveRanksTest, ADeadOne) { RunUntilTheVictimIs(SIGKILL, absl::Seconds(60), "UNAVAILABLE"); }

TEST_P(GroupsOutliveRanksTest, AStoppedOne) { RunUntilTheVictimIs(SIGSTOP, absl::Seconds(5), "DEADLINE_EXCEEDED"); }

std::vector<Case> AllCases() {
  std::vector<Case> cases;
  for (const int ranks_per_node : {0, 1, 2}) {
    for (const std::int64_t count : {std::int64_t{3}, std::int64_t{700'001}}) {
      cases.push_back(
          {absl::StrCat(count == 3 ? "small" : "large", "_", ranks_per_node, "_per_node"), ranks_per_node, count});
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(, GroupsOutliveRanksTest, ::testing::ValuesIn(AllCases()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace tutti
