// Residuals, what codecs hold back of gradients, reach the weights in the end, even in a world of another size, and
// after the scale of the loss has changed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "tests/harness/training.h"

namespace tutti {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kSteps = 30;           // steps with gradients
constexpr int kDrainingSteps = 200;  // steps without gradients, in which what was held back arrives

// The number of ranks, and of ranks on each node (0: one node).
struct World {
  int size = 0;
  int ranks_per_node = 0;
};

Training TrainingOf(const std::string& strategy, const World& world) {
  Training training;
  training.model = {.counts = {900, 600}, .bucket_bytes = 3000, .first_bucket_bytes = 3000, .buckets = {{1}, {0}}};
  training.strategy = strategy;
  training.lr = 1;
  training.initial = Floats(1500, 0);
  training.gradients = RandomGradients(1, world.size, 1500);
  training.world.ranks_per_node = world.ranks_per_node;
  return training;
}

Floats Times(const Floats& values, float factor) {
  Floats product = values;
  for (float& value : product) value *= factor;
  return product;
}

// Expects that `weights`, after `steps` steps of the gradients of `training` and after Drain, are where exact averages
// would have led, except for rounding.
void ExpectAllHasArrived(const Training& training, int steps, const Floats& weights) {
  const auto size = static_cast<float>(training.size());
  const float divisor = absl::StrContains(training.strategy, "average=false") ? 1 : size;
  double worst = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    double due = 0;
    for (const Floats& gradient : training.gradients[0]) due -= static_cast<double>(gradient[i]) * steps / divisor;
    worst = std::max(worst, std::abs(weights[i] - due));
  }
  EXPECT_LT(worst, 1e-4 * steps * (divisor == 1 ? size : 1));
}

// Makes steps with gradients of 0, in which only what was held back arrives.
void Drain(Replica& replica, const Training& training) {
  const Floats nothing(training.initial.size(), 0);
  for (int step = 0; step < kDrainingSteps; ++step) {
    ASSERT_TRUE(replica.Step(nothing, training.lr).ok());
  }
}

class HeldBack : public ::testing::TestWithParam<const char*> {};

TEST_P(HeldBack, ArrivesInAWorldOfAnotherSize) {
  for (const auto& [before, after] :
       {std::pair(World{4}, World{4}), std::pair(World{4}, World{2}), std::pair(World{2}, World{4}),
        std::pair(World{4}, World{3}), std::pair(World{8, 4}, World{6, 3}), std::pair(World{4, 2}, World{4, 1})}) {
    SCOPED_TRACE(testing::Message() << "from " << before.size << " ranks to " << after.size);
    const Training training = TrainingOf(GetParam(), before);
    std::vector<std::string> states(before.size);
    Floats weights;
    RunReplicas(training, [&](Communicator& world, Replica& replica) {
      for (int step = 0; step < kSteps; ++step) {
        ASSERT_TRUE(replica.Step(training.gradients[0][world.rank()], training.lr).ok());
      }
      states[world.rank()] = replica.synchronizer().SaveState();
      if (world.rank() == 0) weights = replica.weights();
    });
    RunReplicas(TrainingOf(GetParam(), after), [&](Communicator& world, Replica& replica) {
      replica.weights() = weights;
      ASSERT_EQ(replica.synchronizer().LoadState(states), absl::OkStatus());
      Drain(replica, training);
      if (world.rank() == 0) ExpectAllHasArrived(training, kSteps, replica.weights());
    });
  }
}

TEST_P(HeldBack, ArrivesWithAnotherScaleOfTheLoss) {
  const Training training = TrainingOf(GetParam(), {3});
  RunReplicas(training, [&](Communicator& world, Replica& replica) {
    float scale = 0;
    for (int step = 0; step < kSteps; ++step) {
      scale = step < 10 ? 1024 : step < 20 ? 2048 : 256;
      ASSERT_EQ(replica.synchronizer().SetLossScale(scale), absl::OkStatus());
      ASSERT_TRUE(replica.Step(Times(training.gradients[0][world.rank()], scale), training.lr / scale).ok());
    }
    ASSERT_EQ(replica.synchronizer().SetLossScale(1), absl::OkStatus());
    Drain(replica, training);
    ExpectAllHasArrived(training, kSteps, replica.weights());
  });
}

// A state contains the scale in which gradients were held back.
TEST_P(HeldBack, ArrivesWithAnotherScaleAfterACheckpoint) {
  const Training training = TrainingOf(GetParam(), {2});
  std::vector<std::string> states(2);
  Ranks weights(2);
  RunReplicas(training, [&](Communicator& world, Replica& replica) {
    ASSERT_EQ(replica.synchronizer().SetLossScale(64), absl::OkStatus());
    for (int step = 0; step < kSteps; ++step) {
      ASSERT_TRUE(replica.Step(Times(training.gradients[0][world.rank()], 64), training.lr / 64).ok());
    }
    states[world.rank()] = replica.synchronizer().SaveState();
    weights[world.rank()] = replica.weights();
  });
  RunReplicas(training, [&](Communicator& world, Replica& replica) {
    replica.weights() = weights[world.rank()];
    ASSERT_EQ(replica.synchronizer().LoadState({states[world.rank()]}), absl::OkStatus());
    EXPECT_EQ(replica.synchronizer().loss_scale(), 64);
    ASSERT_EQ(replica.synchronizer().SetLossScale(1), absl::OkStatus());
    Drain(replica, training);
    ExpectAllHasArrived(training, kSteps, replica.weights());
  });
}

INSTANTIATE_TEST_SUITE_P(Strategies, HeldBack,
                         ::testing::Values("bytegrad:codec=topk,density=0.1,error_feedback=true",
                                           "bytegrad:codec=topk,density=0.1,error_feedback=true,average=false",
                                           "bytegrad:codec=topk,density=0.1,error_feedback=true,hierarchical=false",
                                           "bytegrad:codec=sign,block=8,error_feedback=true",
                                           "bytegrad:codec=uint4_block,error_feedback=true",
                                           "bytegrad:codec=uint8_block,error_feedback=true",
                                           "bytegrad:codec=minmax_uint8,error_feedback=true"),
                         [](const auto& test) { return "Strategy" + std::to_string(test.index); });

TEST(LossScale, MustBeEqualOnAllRanks) {
  const Training training = TrainingOf("bytegrad:error_feedback=true", {3});
  RunReplicas(training, [&](Communicator& world, Replica& replica) {
    Synchronizer& synchronizer = replica.synchronizer();
    const absl::Status refused = synchronizer.SetLossScale(world.rank() == 2 ? 512 : 1024);
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(refused.message()), HasSubstr("rank 2 has loss scale=512, rank 0 has 1024"));
    EXPECT_EQ(synchronizer.loss_scale(), 1);
    EXPECT_EQ(synchronizer.SetLossScale(1024), absl::OkStatus());
    EXPECT_EQ(synchronizer.loss_scale(), 1024);
    EXPECT_TRUE(replica.Step(training.gradients[0][world.rank()], training.lr).ok());
  });
}

TEST(LossScale, MustBeANumberThatALossCanHave) {
  RunReplicas(TrainingOf("bytegrad:error_feedback=true", {2}), [&](Communicator& /*world*/, Replica& replica) {
    for (const double scale : {0.0, -1.0, std::nan(""), HUGE_VAL}) {
      const absl::Status refused = replica.synchronizer().SetLossScale(scale);
      EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << scale;
      EXPECT_THAT(std::string(refused.message()), HasSubstr("must be a finite number above 0"));
    }
    EXPECT_EQ(replica.synchronizer().loss_scale(), 1);
  });
}

TEST(LossScale, ChangesBetweenStepsOnly) {
  RunReplicas(TrainingOf("bytegrad:error_feedback=true", {1}), [&](Communicator& /*world*/, Replica& replica) {
    ASSERT_TRUE(replica.synchronizer().BeginBackward().ok());
    EXPECT_EQ(replica.synchronizer().SetLossScale(2).code(), absl::StatusCode::kFailedPrecondition);
    replica.synchronizer().MarkReady(0);
    replica.synchronizer().MarkReady(1);
    ASSERT_TRUE(replica.synchronizer().FinishBackward().ok());
    EXPECT_EQ(replica.synchronizer().SetLossScale(2), absl::OkStatus());
  });
}

// A rank that does not know of the peer's mistake would wait for it until the timeout.
TEST(LossScale, AChangeWithinTheStepOfOneRankIsToldToAll) {
  Training training = TrainingOf("bytegrad:error_feedback=true", {2});
  training.world.communicator.timeout = absl::Seconds(20);
  RunReplicas(training, [&](Communicator& world, Replica& replica) {
    if (world.rank() == 1) {
      ASSERT_EQ(replica.synchronizer().BeginBackward(), absl::OkStatus());
    }
    const absl::Status refused = replica.synchronizer().SetLossScale(2);
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
    EXPECT_THAT(std::string(refused.message()),
                HasSubstr("rank 1 has arguments=the loss scale may only change between steps"));
    ASSERT_EQ(replica.synchronizer().CancelBackward(), absl::OkStatus());
    EXPECT_EQ(replica.synchronizer().SetLossScale(2), absl::OkStatus());
  });
}

// An agreement would meet the gradients of the peer, and end the communicator.
TEST(LossScale, AChangeWhileGradientsTravelIsRefusedAtOnce) {
  RunReplicas(TrainingOf("bytegrad:error_feedback=true", {2}), [&](Communicator& world, Replica& replica) {
    Synchronizer& synchronizer = replica.synchronizer();
    ASSERT_EQ(synchronizer.BeginBackward(), absl::OkStatus());
    for (int i = 0; i < static_cast<int>(synchronizer.parameters().size()); ++i) synchronizer.MarkReady(i);
    if (world.rank() == 0) {
      EXPECT_EQ(synchronizer.SetLossScale(2).code(), absl::StatusCode::kFailedPrecondition);
    }
    ASSERT_EQ(synchronizer.FinishBackward(), absl::OkStatus());
    EXPECT_EQ(synchronizer.SetLossScale(2), absl::OkStatus());
  });
}

TEST(LossScale, OfMomentumIsOne) {
  RunReplicas(TrainingOf("qadam:warmup_steps=1,error_feedback=true", {2}),
              [&](Communicator& /*world*/, Replica& replica) {
                EXPECT_EQ(replica.synchronizer().SetLossScale(1), absl::OkStatus());
                const absl::Status refused = replica.synchronizer().SetLossScale(8);
                EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
                EXPECT_THAT(std::string(refused.message()), HasSubstr("qadam"));
              });
}

// Where weights are exchanged, gradients stay on their rank: nothing of them is held back, and ranks may scale them
// alone.
TEST(LossScale, MeansNothingToWeights) {
  RunReplicas(TrainingOf("low_precision_decentralized", {2}), [&](Communicator& world, Replica& replica) {
    if (world.rank() == 0) {
      EXPECT_EQ(replica.synchronizer().SetLossScale(8), absl::OkStatus());
    }
    EXPECT_TRUE(replica.Step(Floats(1500, 1), 1).ok());
  });
}

}  // namespace
}  // namespace tutti
