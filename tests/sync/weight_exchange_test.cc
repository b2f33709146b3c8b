// Exchanges of weights that do not end with the step to which they belong.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "tests/harness/rank_barrier.h"
#include "tests/harness/training.h"

namespace tutti {
namespace {

// Whether a checkpoint, which waits for the exchange that is under way, is saved before the exchange is abandoned.
class Abandoned : public ::testing::TestWithParam<std::tuple<const char*, bool>> {};

// The test abandons an exchange as an exception between forward and the optimizer would.
TEST_P(Abandoned, InMidStepEndsTheStepsOfThePeersToo) {
  Training training = RandomTraining(std::get<0>(GetParam()), 3, 1);
  training.world.communicator.timeout = absl::Seconds(20);
  RankBarrier begun(3);
  training.world.barrier = &begun;
  RunWorld(3, training.world, [&](Communicator& world) {
    std::unique_ptr<Replica> replica = Replica::Make(world, training.model, training.strategy, training.initial);
    ASSERT_NE(replica, nullptr);
    const Floats& gradient = training.gradients[0][world.rank()];
    for (int step = 0; step < 5; ++step) ASSERT_TRUE(replica->Step(gradient, training.lr).ok());
    begun.Wait();
    if (world.rank() == 1) {
      (void)replica->synchronizer().BeginForward();
      if (std::get<1>(GetParam())) {
        EXPECT_NE(replica->synchronizer().SaveState(), "");
      }
      replica = nullptr;
      return;
    }
    absl::Status status;
    for (int step = 0; step < 100 && status.ok(); ++step) status = replica->Step(gradient, training.lr);
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
    EXPECT_NE(status.message().find("rank 1 gave up its synchronizer"), absl::string_view::npos) << status;
  });
}

INSTANTIATE_TEST_SUITE_P(Strategies, Abandoned,
                         ::testing::Combine(::testing::Values("decentralized",
                                                              "decentralized:peer_selection_mode=ring"),
                                            ::testing::Bool()));

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

// A rank goes on to its next forward without the messages of its neighbours.
TEST(WeightExchange, LowPrecisionDecentralizedDoesNotWaitForTheNeighboursMessages) {
  Training training = RandomTraining("low_precision_decentralized", 2, 4);
  training.world.ranks_per_node = 1;
  const History expected = Train(training);
  RankBarrier turn(2);
  training.world.barrier = &turn;
  RunReplicas(training, [&](Communicator& world, Replica& replica) {
    for (std::size_t step = 0; step < training.gradients.size(); ++step) {
      // The first step of rank 1 begins when rank 0 has ended its own.
      if (step == 0 && world.rank() == 1) turn.Wait();
      ASSERT_TRUE(replica.Step(training.gradients[step][world.rank()], training.lr).ok());
      if (step == 0 && world.rank() == 0) turn.Wait();
      EXPECT_EQ(replica.weights(), expected[step][world.rank()]) << step;
    }
  });
}

// Trains, with a checkpoint in between; the last entry are the weights after a Flush at the end.
History TrainAndFlush(const Training& training) {
  History history(training.gradients.size() + 1, Ranks(training.gradients[0].size()));
  RunReplicas(training, [&](Communicator& world, Replica& replica) {
    for (std::size_t step = 0; step < training.gradients.size(); ++step) {
      ASSERT_TRUE(replica.Step(training.gradients[step][world.rank()], training.lr).ok());
      history[step][world.rank()] = replica.weights();
      if (step == 1) {
        EXPECT_NE(replica.synchronizer().SaveState(), "");
      }
    }
    ASSERT_TRUE(replica.synchronizer().Flush().ok());
    history.back()[world.rank()] = replica.weights();
  });
  return history;
}

// A weight that is alone in its bucket is exchanged where it lies, others in a copy: results are equal.
TEST(WeightExchange, WeightsAreTheSameWhereverTheyAreExchanged) {
  for (const int ranks_per_node : {0, 1, 2}) {
    const int size = ranks_per_node == 2 ? 4 : 3;
    Training training = RandomTraining("low_precision_decentralized", size, 6);
    training.world.ranks_per_node = ranks_per_node;
    training.model.counts = {200 << 10, 4096};  // whole blocks of the codec, and several segments
    training.initial = RandomNumbers(training.model.count(), 7);
    training.gradients = RandomGradients(6, size, training.model.count());
    training.model.bucket_bytes = training.model.first_bucket_bytes = 1 << 20;
    training.model.buckets = {{1, 0}};
    History together = TrainAndFlush(training);
    training.model.bucket_bytes = training.model.first_bucket_bytes = 1;
    training.model.buckets = {{1}, {0}};
    History alone = TrainAndFlush(training);
    // The order in which an average is added up depends on where a bucket is cut.
    for (std::size_t i = 0; i < training.initial.size(); ++i) {
      ASSERT_NEAR(alone.back()[0][i], together.back()[0][i], 1e-6) << ranks_per_node << " ranks per node";
    }
    alone.pop_back();
    together.pop_back();
    EXPECT_EQ(alone, together) << ranks_per_node << " ranks per node";
  }
}

// The next exchange begins as soon as a step has ended, as in the torch adapter. SaveState must not keep the result of
// that exchange from being applied; LoadState drops the exchange.
TEST(WeightExchange, SaveStateLosesNoExchangeThatIsUnderWay) {
  for (const char* strategy :
       {"decentralized", "decentralized:peer_selection_mode=shift_one", "low_precision_decentralized"}) {
    const Training training = RandomTraining(strategy, 4, 6);
    const History expected = Train(training);
    RunReplicas(training, [&](Communicator& world, Replica& replica) {
      const Rank rank = world.rank();
      std::string saved;
      for (std::size_t step = 0; step < training.gradients.size(); ++step) {
        ASSERT_TRUE(replica.Step(training.gradients[step][rank], training.lr).ok());
        EXPECT_EQ(replica.weights(), expected[step][rank]) << strategy << ", step " << step;
        ASSERT_TRUE(replica.synchronizer().BeginForward().ok());
        if (step == 2) saved = replica.synchronizer().SaveState();
      }
      replica.weights() = expected[2][rank];
      ASSERT_TRUE(replica.synchronizer().LoadState({saved}).ok());
      for (std::size_t step = 3; step < training.gradients.size(); ++step) {
        ASSERT_TRUE(replica.synchronizer().BeginForward().ok());
        ASSERT_TRUE(replica.Step(training.gradients[step][rank], training.lr).ok());
        EXPECT_EQ(replica.weights(), expected[step][rank]) << strategy << ", resumed, step " << step;
      }
    });
  }
}

// A failed exchange leaves replicas in the middle of a round, also once the step has told its error.
TEST(WeightExchange, NoStateIsSavedAfterAnExchangeThatFailed) {
  Training training = RandomTraining("low_precision_decentralized", 2, 1);
  RankBarrier begun(2);
  training.world.barrier = &begun;
  RunReplicas(training, [&](Communicator& world, Replica& replica) {
    Synchronizer& synchronizer = replica.synchronizer();
    ASSERT_TRUE(synchronizer.BeginForward().ok());
    ASSERT_TRUE(synchronizer.BeforeStep().ok());
    begun.Wait();
    world.Abort(absl::AbortedError("enough"));
    EXPECT_EQ(synchronizer.AfterStep().code(), absl::StatusCode::kAborted);
    EXPECT_EQ(synchronizer.SaveState(), "");
    EXPECT_EQ(synchronizer.SaveState(), "");
    // The replicas would start anew from weights that no broadcast can make equal.
    EXPECT_EQ(synchronizer.Restart(), absl::OkStatus());
    EXPECT_EQ(synchronizer.SaveState(), "");
    EXPECT_EQ(synchronizer.BeginForward().code(), absl::StatusCode::kAborted);
    EXPECT_EQ(synchronizer.SaveState(), "");
  });
}

// The replicas would be copies of weights that are not equal.
TEST(WeightExchange, NoStateIsSavedAfterAnAverageThatFailed) {
  Training training = RandomTraining("low_precision_decentralized", 1, 1);
  std::string of_one_rank;
  RunReplicas(training, [&](Communicator&, Replica& replica) { of_one_rank = replica.synchronizer().SaveState(); });
  training.gradients = RandomGradients(1, 2, training.model.count());
  training.world.region_bytes = std::int64_t{64} << 20;
  RunReplicas(training, [&](Communicator& world, Replica& replica) {
    Synchronizer& synchronizer = replica.synchronizer();
    const auto without_memory = [&](const std::function<absl::Status()>& call) {
      std::vector<Buffer> taken;
      if (world.rank() == 1) taken = TakeFreeMemory(world);
      return call();
    };
    const std::function<absl::Status()> averages[] = {[&] { return synchronizer.Flush(); },
                                                      [&] { return synchronizer.LoadState({of_one_rank}); }};
    for (const std::function<absl::Status()>& average : averages) {
      ASSERT_EQ(replica.Step(training.gradients[0][world.rank()], training.lr), absl::OkStatus());
      EXPECT_NE(synchronizer.SaveState(), "");
      EXPECT_EQ(without_memory(average).code(), absl::StatusCode::kResourceExhausted);
      EXPECT_EQ(synchronizer.SaveState(), "");
      EXPECT_EQ(synchronizer.BeginForward().code(), absl::StatusCode::kResourceExhausted) << "replicas are not known";
      EXPECT_EQ(average(), absl::OkStatus());
      EXPECT_NE(synchronizer.SaveState(), "");
    }
  });
}

// A forward for evaluation begins an exchange, but its step never comes.
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

// An average would be applied twice to weights that two parameters share.
TEST(WeightExchange, RefusesWeightsThatTwoParametersShare) {
  for (const char* strategy : {"decentralized", "low_precision_decentralized", "async"}) {
    RunWorld(2, [&](Communicator& world) {
      std::vector<float> memory(10);
      const auto make = [&](std::ptrdiff_t first_of_head, const std::string& with) {
        return Synchronizer::Create(
                   world,
                   {{.name = "embedding", .count = 4, .shape = "4", .weights = memory.data()},
                    {.name = "empty", .count = 0, .shape = "0", .weights = memory.data()},
                    {.name = "head", .count = 4, .shape = "4", .weights = memory.data() + first_of_head}},
                   {.strategy = with})
            .status();
      };
      for (const std::ptrdiff_t shared : {0, 3}) {
        const absl::Status refused = make(shared, strategy);
        EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
        EXPECT_NE(refused.message().find("parameters embedding and head have weights in common"),
                  absl::string_view::npos)
            << refused;
        EXPECT_EQ(make(shared, "gradient_allreduce"), absl::OkStatus());  // which does not look at weights
      }
      EXPECT_EQ(make(4, strategy), absl::OkStatus());
    });
  }
}

// If the others were not told, they would wait for this rank in the first exchange.
TEST(WeightExchange, AMistakeOfOneRankIsToldToAll) {
  RunWorld(3, [](Communicator& world) {
    float weight = 1;
    const absl::Status status =
        Synchronizer::Create(
            world, {{.name = "p", .count = 1, .shape = "1", .weights = world.rank() == 1 ? nullptr : &weight}},
            {.strategy = "async"})
            .status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find("rank 1"), absl::string_view::npos) << status;
    EXPECT_NE(status.message().find("parameter p has no weights"), absl::string_view::npos) << status;
  });
}

}  // namespace
}  // namespace tutti
