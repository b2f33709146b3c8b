// States are loaded by all ranks or by none, and must have been saved in one step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/harness/training.h"

namespace tutti {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kRanks = 3;

// The states of all ranks of `training` after its first step and after its second.
std::vector<std::vector<std::string>> StatesAfterEachStep(const Training& training) {
  std::vector<std::vector<std::string>> states(2, std::vector<std::string>(training.size()));
  RunReplicas(training, [&](Communicator& world, Replica& replica) {
    for (int step = 0; step < 2; ++step) {
      ASSERT_TRUE(replica.Step(training.gradients[step][world.rank()], training.lr).ok());
      states[step][world.rank()] = replica.synchronizer().SaveState();
    }
  });
  return states;
}

class CheckpointAgreement : public ::testing::TestWithParam<const char*> {};

TEST_P(CheckpointAgreement, AMistakeOfOneRankIsToldToAll) {
  const Training training = RandomTraining(GetParam(), kRanks, 2);
  const std::vector<std::vector<std::string>> states = StatesAfterEachStep(training);
  RunReplicas(training, [&](Communicator& world, Replica& replica) {
    const std::string before = replica.synchronizer().SaveState();
    const std::string own = world.rank() == 1 ? "junk" : states[1][world.rank()];
    const absl::Status refused = replica.synchronizer().LoadState({own});
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(refused.message()), HasSubstr("states[0] was not saved by a Synchronizer"));
    if (world.rank() != 1) {
      EXPECT_THAT(std::string(refused.message()), HasSubstr("rank 1"));
    }
    EXPECT_EQ(replica.synchronizer().SaveState(), before);
    EXPECT_TRUE(replica.synchronizer().LoadState({states[1][world.rank()]}).ok());
    EXPECT_TRUE(replica.Step(training.gradients[0][world.rank()], training.lr).ok());
  });
}

// A crash while states are saved leaves some states of the step before.
TEST_P(CheckpointAgreement, StatesOfDifferentStepsAreRefused) {
  const Training training = RandomTraining(GetParam(), kRanks, 2);
  const std::vector<std::vector<std::string>> states = StatesAfterEachStep(training);
  RunReplicas(training, [&](Communicator& world, Replica& replica) {
    const Rank rank = world.rank();
    const absl::Status refused = replica.synchronizer().LoadState({states[rank == 2 ? 0 : 1][rank]});
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(refused.message()), AllOf(HasSubstr("rank 2"), HasSubstr("step of the states")));
    EXPECT_EQ(replica.synchronizer().step(), 0);
  });
}

INSTANTIATE_TEST_SUITE_P(Strategies, CheckpointAgreement,
                         ::testing::Values("gradient_allreduce", "decentralized:peer_selection_mode=shift_one",
                                           "low_precision_decentralized"),
                         [](const auto& test) { return absl::StrCat("Strategy", test.index); });

// Ranks of async count steps separately.
TEST(AsyncCheckpoint, IsLoadedAlthoughRanksHaveMadeDifferentSteps) {
  const std::string strategy = "async:sync_interval_ms=50000";
  Training training = RandomTraining(strategy, 2, 1);
  std::vector<std::string> states(2);
  RunReplicas(training, [&](Communicator& world, Replica& replica) {
    for (int step = 0; step < 5 + world.rank(); ++step) {
      ASSERT_TRUE(replica.Step(training.gradients[0][world.rank()], training.lr).ok());
    }
    ASSERT_TRUE(replica.synchronizer().Flush().ok());
    states[world.rank()] = replica.synchronizer().SaveState();
  });
  RunReplicas(training, [&](Communicator& world, Replica& replica) {
    ASSERT_EQ(replica.synchronizer().LoadState({states[world.rank()]}), absl::OkStatus());
    EXPECT_EQ(replica.synchronizer().step(), 5 + world.rank());
  });
  training = RandomTraining(strategy, 4, 1);
  RunReplicas(training, [&](Communicator& world, Replica& replica) {
    ASSERT_EQ(replica.synchronizer().LoadState(states), absl::OkStatus());
    EXPECT_EQ(replica.synchronizer().step(), 5) << "rank " << world.rank();
  });
}

}  // namespace
}  // namespace tutti
