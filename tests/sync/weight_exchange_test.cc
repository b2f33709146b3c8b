// Exchanges of weights that end in another way than with the step they belong to.
#include <gtest/gtest.h>

#include <barrier>
#include <memory>

#include "tests/harness/training.h"

namespace tutti {
namespace {

class Abandoned : public ::testing::TestWithParam<const char*> {};

// As an exception between forward and the optimizer does.
TEST_P(Abandoned, InMidStepEndsTheStepsOfThePeersToo) {
  Training training = RandomTraining(GetParam(), 3, 1);
  training.world.communicator.timeout = absl::Seconds(20);
  std::barrier<> begun(3);
  RunWorld(3, training.world, [&](Communicator& world) {
    std::unique_ptr<Replica> replica = Replica::Make(world, training.model, GetParam(), training.initial);
    ASSERT_NE(replica, nullptr);
    const Floats& gradient = training.gradients[0][world.rank()];
    for (int step = 0; step < 5; ++step) ASSERT_TRUE(replica->Step(gradient, training.lr).ok());
    begun.arrive_and_wait();
    if (world.rank() == 1) {
      (void)replica->synchronizer().BeginForward();
      replica = nullptr;
      return;
    }
    absl::Status status;
    for (int step = 0; step < 100 && status.ok(); ++step) status = replica->Step(gradient, training.lr);
    EXPECT_FALSE(status.ok()) << "rank " << world.rank() << " does not know that rank 1 has left";
  });
}

INSTANTIATE_TEST_SUITE_P(Strategies, Abandoned,
                         ::testing::Values("decentralized", "decentralized:peer_selection_mode=ring"));

TEST(WeightExchange, BeginForwardMayBeCalledAgainAndAgain) {
  const Training training = RandomTraining("decentralized:peer_selection_mode=ring", 3, 5);
  const History expected = Train(training);
  RunReplicas(training, [&](Communicator& world, Replica& replica) {
    for (std::size_t step = 0; step < training.gradients.size(); ++step) {
      for (int again = 0; again < 3; ++again) ASSERT_TRUE(replica.synchronizer().BeginForward().ok());
      ASSERT_TRUE(replica.Step(training.gradients[step][world.rank()], training.lr).ok());
      EXPECT_EQ(replica.weights(), expected[step][world.rank()]);
    }
  });
}

// A rank needs nothing of its neighbours to go on to its next forward.
TEST(WeightExchange, LowPrecisionDecentralizedDoesNotWaitForTheNeighboursMessages) {
  Training training = RandomTraining("low_precision_decentralized", 2, 4);
  training.world.ranks_per_node = 1;
  const History expected = Train(training);
  std::barrier<> turn(2);
  RunReplicas(training, [&](Communicator& world, Replica& replica) {
    for (std::size_t step = 0; step < training.gradients.size(); ++step) {
      // The first step of rank 1 begins when rank 0 has ended its own.
      if (step == 0 && world.rank() == 1) turn.arrive_and_wait();
      ASSERT_TRUE(replica.Step(training.gradients[step][world.rank()], training.lr).ok());
      if (step == 0 && world.rank() == 0) turn.arrive_and_wait();
      EXPECT_EQ(replica.weights(), expected[step][world.rank()]) << step;
    }
  });
}

// A forward for evaluation, whose step never comes.
TEST(WeightExchange, AFlushAfterAForwardGivesTheAverage) {
  for (const char* strategy : {"decentralized:peer_selection_mode=shift_one", "low_precision_decentralized"}) {
    const Training training = RandomTraining(strategy, 4, 5);
    Ranks before(4);
    Ranks after(4);
    RunReplicas(training, [&](Communicator& world, Replica& replica) {
      for (const Ranks& gradients : training.gradients) {
        ASSERT_TRUE(replica.Step(gradients[world.rank()], training.lr).ok());
      }
      before[world.rank()] = replica.weights();
      ASSERT_TRUE(replica.synchronizer().BeginForward().ok());
      ASSERT_TRUE(replica.synchronizer().Flush().ok());
      after[world.rank()] = replica.weights();
      ASSERT_TRUE(replica.Step(training.gradients[0][world.rank()], training.lr).ok());
    });
    for (std::size_t i = 0; i < before[0].size(); ++i) {
      const double average = (0.0 + before[0][i] + before[1][i] + before[2][i] + before[3][i]) / 4;
      for (int rank = 0; rank < 4; ++rank) ASSERT_NEAR(after[rank][i], average, 1e-6) << strategy;
    }
  }
}

TEST(WeightExchange, NamesAParameterWithoutWeights) {
  RunWorld(2, [](Communicator& world) {
    float weight = 1;
    const absl::Status status = Synchronizer::Create(world,
                                                     {{.name = "known", .count = 1, .shape = "1", .weights = &weight},
                                                      {.name = "forgotten", .count = 1, .shape = "1"}},
                                                     {.strategy = "decentralized"})
                                    .status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find("parameter forgotten has no weights"), absl::string_view::npos) << status;
  });
}

}  // namespace
}  // namespace tutti
