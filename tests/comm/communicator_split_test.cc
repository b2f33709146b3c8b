// Messages of one group must never be taken for those of another, whichever way the groups came to be.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/harness/world.h"

namespace tutti {
namespace {

using Groups = std::vector<std::unique_ptr<Communicator>>;

class CommunicatorSplitTest : public ::testing::TestWithParam<std::string> {
 protected:
  // Memory is not mapped: in mapped memory no messages are sent that could be mistaken.
  WorldOptions options() const {
    return {.transport = GetParam(),
            .communicator = {.timeout = absl::Seconds(60), .mapping = CommunicatorOptions::Mapping::kNever}};
  }
};

// Appends the group of `color` to `groups`, unless `color` is negative.
void Split(Communicator& comm, int color, Groups& groups) {
  absl::StatusOr<std::unique_ptr<Communicator>> group = comm.Split(color, comm.rank());
  ASSERT_TRUE(group.ok()) << group.status();
  if (color >= 0) groups.push_back(*std::move(group));
}

// All groups add up numbers of their own at the same time; each rank starts with another group.
void ExpectOwnSums(const Groups& groups, const std::vector<std::int64_t>& numbers, std::size_t first) {
  std::vector<std::int64_t> sums(groups.size());
  std::vector<Work> works(groups.size());
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const std::size_t group = (first + i) % groups.size();
    sums[group] = numbers[group];
    works[group] = groups[group]->AllReduce(&sums[group], &sums[group], 1, DType::kI64, ReduceOp::kSum);
  }
  for (std::size_t i = 0; i < groups.size(); ++i) {
    ASSERT_EQ(works[i].Wait(), absl::OkStatus());
    EXPECT_EQ(sums[i], numbers[i] * groups[i]->size()) << "group " << i;
  }
}

TEST_P(CommunicatorSplitTest, ThreadsSplitDifferentCommunicatorsAtOnce) {
  constexpr int kParents = 3;
  constexpr int kSplits = 20;
  RunWorld(3, options(), [](Communicator& world) {
    Groups parents;
    for (int i = 0; i < kParents; ++i) Split(world, 0, parents);
    std::vector<Groups> made(kParents);
    std::vector<std::thread> threads;
    for (int i = 0; i < kParents; ++i) {
      threads.emplace_back([&, i] {
        for (int split = 0; split < kSplits; ++split) Split(*parents[i], 0, made[i]);
      });
    }
    for (std::thread& thread : threads) thread.join();
    Groups groups;
    std::vector<std::int64_t> numbers;
    for (Groups& of_parent : made) {
      for (std::unique_ptr<Communicator>& group : of_parent) {
        numbers.push_back(static_cast<std::int64_t>(1 + groups.size()));
        groups.push_back(std::move(group));
      }
    }
    ASSERT_EQ(groups.size(), std::size_t{kParents * kSplits});
    ExpectOwnSums(groups, numbers, 7 * static_cast<std::size_t>(world.rank()));
  });
}

// Some ranks are in more groups than others, so that ranks give one group different numbers.
TEST_P(CommunicatorSplitTest, GroupsOverlap) {
  RunWorld(3, options(), [](Communicator& world) {
    Groups groups;
    std::vector<std::int64_t> numbers;
    for (Rank outside = 0; outside < 3; ++outside) {
      for (int round = 0; round <= outside; ++round) {
        if (world.rank() != outside) numbers.push_back(10 * outside + round + 1);
        Split(world, world.rank() == outside ? -1 : 0, groups);
      }
    }
    Split(world, 0, groups);
    numbers.push_back(100);
    ExpectOwnSums(groups, numbers, static_cast<std::size_t>(world.rank()));
  });
}

INSTANTIATE_TEST_SUITE_P(Transports, CommunicatorSplitTest, ::testing::ValuesIn(WorldTransports()),
                         [](const auto& transport) { return transport.param; });

}  // namespace
}  // namespace tutti
