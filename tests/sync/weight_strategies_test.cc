// Strategies that exchange weights, through the calls of a training loop. Tests in tests/algorithms compare their
// results with references.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "tests/harness/world.h"
#include "tutti/synchronizer.h"

namespace tutti {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

// A model of two tensors in one bucket each, and "training" that subtracts the rank from every weight.
class Model {
 public:
  Model(Communicator& world, const std::string& strategy) : world_(world), a_(5000, 0.0f), b_(7, 0.0f) {
    absl::StatusOr<std::unique_ptr<Synchronizer>> made =
        Synchronizer::Create(world,
                             {{.name = "a", .count = 5000, .shape = "5000", .weights = a_.data()},
                              {.name = "b", .count = 7, .shape = "7", .weights = b_.data()}},
                             {.strategy = strategy, .bucket_bytes = 20000, .first_bucket_bytes = 64});
    EXPECT_TRUE(made.ok()) << made.status();
    if (made.ok()) synchronizer = *std::move(made);
  }

  void Step() {
    EXPECT_EQ(synchronizer->BeginForward(), absl::OkStatus());
    EXPECT_EQ(synchronizer->BeginBackward(), absl::OkStatus());
    for (int i : {1, 0}) synchronizer->MarkReady(i);
    EXPECT_EQ(synchronizer->FinishBackward(), absl::OkStatus());
    EXPECT_EQ(synchronizer->BeforeStep(), absl::OkStatus());
    for (std::vector<float>* weights : {&a_, &b_}) {
      for (float& weight : *weights) weight -= static_cast<float>(world_.rank());
    }
    EXPECT_EQ(synchronizer->AfterStep(), absl::OkStatus());
  }

  void ExpectAll(float value) const {
    EXPECT_THAT(a_, Each(value));
    EXPECT_THAT(b_, Each(value));
  }
  float value() const { return a_[0]; }
  void Move() { a_[0] += 1; }

  absl::Status CheckReplicas() {
    return synchronizer->CheckState({{a_.data(), 4 * 5000, "a"}, {b_.data(), 4 * 7, "b"}});
  }

  std::unique_ptr<Synchronizer> synchronizer;

 private:
  Communicator& world_;
  std::vector<float> a_;
  std::vector<float> b_;
};

TEST(WeightStrategies, ReplicasDifferByDesignUntilFlush) {
  for (const std::string strategy : {"decentralized", "low_precision_decentralized", "async"}) {
    RunWorld(2, [&](Communicator& world) {
      Model model(world, strategy);
      EXPECT_EQ(model.CheckReplicas(), absl::OkStatus());
      model.Step();
      const absl::Status before = model.CheckReplicas();
      EXPECT_EQ(before.code(), absl::StatusCode::kFailedPrecondition) << before;
      EXPECT_THAT(std::string(before.message()), HasSubstr("rank 1 has hash of a"));
      EXPECT_THAT(std::string(before.message()),
                  HasSubstr(strategy + " lets replicas differ from each step to the "
                                       "next Flush: call Flush (in Python: flush) on all ranks"));
      ASSERT_EQ(model.synchronizer->Flush(), absl::OkStatus());
      EXPECT_EQ(model.CheckReplicas(), absl::OkStatus());
      // After Flush nothing but a mistake makes replicas differ.
      if (world.rank() == 1) model.Move();
      EXPECT_EQ(model.CheckReplicas().code(), absl::StatusCode::kDataLoss);
    });
  }
}

TEST(WeightStrategies, ReplicasDifferByDesignAfterAStateOfAStepWasLoaded) {
  for (const std::string strategy : {"decentralized", "low_precision_decentralized", "async"}) {
    RunWorld(2, [&](Communicator& world) {
      Model saved(world, strategy);
      const std::string at_first = saved.synchronizer->SaveState();
      saved.Step();
      const std::string after_a_step = saved.synchronizer->SaveState();
      Model model(world, strategy);
      if (world.rank() == 1) model.Move();
      ASSERT_EQ(model.synchronizer->LoadState({after_a_step}), absl::OkStatus());
      const absl::Status differ = model.CheckReplicas();
      EXPECT_EQ(differ.code(), absl::StatusCode::kFailedPrecondition) << differ;
      ASSERT_EQ(model.synchronizer->LoadState({at_first}), absl::OkStatus());
      EXPECT_EQ(model.CheckReplicas().code(), absl::StatusCode::kDataLoss) << strategy;
    });
  }
}

TEST(WeightStrategies, NoDifferenceIsByDesignInAWarmUp) {
  RunWorld(2, [](Communicator& world) {
    Model model(world, "async:warmup_steps=2");
    model.Step();
    EXPECT_EQ(model.CheckReplicas().code(), absl::StatusCode::kDataLoss);  // by the mistake of Model::Step
  });
}

TEST(WeightStrategies, TheGradientIsAppliedToTheMix) {
  RunWorld(4, [](Communicator& world) {
    Model model(world, "decentralized");
    const auto r = static_cast<float>(world.rank());
    model.Step();
    model.ExpectAll(-r);
    model.Step();
    model.ExpectAll(-1.5f - r);
    EXPECT_EQ(model.synchronizer->step(), 2);
    EXPECT_TRUE(model.synchronizer->exchanges_weights());
    EXPECT_FALSE(model.synchronizer->exchanges_gradients());
    EXPECT_EQ(model.synchronizer->GradientView(0), nullptr);
    ASSERT_EQ(model.synchronizer->Flush(), absl::OkStatus());
    model.ExpectAll(-3);
    EXPECT_GT(model.synchronizer->TakeStatistics().wire_bytes, 0);
  });
}

TEST(WeightStrategies, PairsMeetInTurnAndOnlyEverySoOften) {
  RunWorld(4, [](Communicator& world) {
    Model model(world, "decentralized:peer_selection_mode=shift_one,communication_interval=2");
    const auto r = static_cast<float>(world.rank());
    model.Step();  // exchanges equal weights
    model.Step();
    model.ExpectAll(-2 * r);
    model.Step();  // round 1 mixes rank 0 with 3, and 1 with 2
    model.ExpectAll(-3 - r);
  });
}

TEST(WeightStrategies, FlushBeforeTheNextForwardForgetsAnExchangeThatHasBegun) {
  RunWorld(3, [](Communicator& world) {
    Model model(world, "decentralized");
    model.Step();
    ASSERT_EQ(model.synchronizer->BeginForward(), absl::OkStatus());
    ASSERT_EQ(model.synchronizer->Flush(), absl::OkStatus());
    model.ExpectAll(-1);
    model.Step();
    model.ExpectAll(-1 - static_cast<float>(world.rank()));
  });
}

TEST(WeightStrategies, LowPrecisionPullsNeighboursTogether) {
  RunWorld(4, [](Communicator& world) {
    Model model(world, "low_precision_decentralized");
    for (int step = 0; step < 40; ++step) model.Step();
    // The weights of all ranks drift by the average of 1.5 per step, and the distance between ranks stays bounded.
    EXPECT_NEAR(model.value(), -60, 6);
    ASSERT_EQ(model.synchronizer->Flush(), absl::OkStatus());
    EXPECT_NEAR(model.value(), -60, 0.5);
  });
}

TEST(WeightStrategies, AsyncMovesWeightsButKeepsTheirSum) {
  RunWorld(3, [](Communicator& world) {
    Model model(world, "async:sync_interval_ms=1");
    std::int64_t steps = 0;
    // Steps go on until a round has reached every rank.
    for (bool all = false; !all; ++steps) {
      model.Step();
      std::int64_t moved = model.value() != -static_cast<float>((steps + 1) * world.rank());
      std::int64_t least = 0;
      ASSERT_EQ(world.AllReduce(&moved, &least, 1, DType::kI64, ReduceOp::kMin).Wait(), absl::OkStatus());
      all = least == 1 || steps > 20000;
    }
    EXPECT_LE(steps, 20000);
    ASSERT_EQ(model.synchronizer->Flush(), absl::OkStatus());
    const double average = -static_cast<double>(steps);
    EXPECT_LE(std::abs(model.value() - average), 1 + 1e-3 * std::abs(average));
  });
}

TEST(WeightStrategies, AsyncMayBePausedAndEndsWhenOneRankDoes) {
  RunWorld(3, [](Communicator& world) {
    {
      Model model(world, "async:sync_interval_ms=1,warmup_steps=2");
      EXPECT_TRUE(model.synchronizer->exchanges_gradients());
      EXPECT_NE(model.synchronizer->GradientView(0), nullptr);
      for (int step = 0; step < 2; ++step) model.Step();
      EXPECT_FALSE(model.synchronizer->exchanges_gradients());
      for (int i = 0; i < 3; ++i) model.synchronizer->Pause();
      model.Step();
      if (world.rank() == 0) return;
      for (int i = 0; i < 3; ++i) model.synchronizer->Resume();
      for (int step = 0; step < 50; ++step) model.Step();
    }
  });
}

TEST(WeightStrategies, SayWhatTheyNeed) {
  RunWorld(2, [](Communicator& world) {
    const absl::Status status =
        Synchronizer::Create(world, {{.name = "a", .count = 5, .shape = "5"}}, {.strategy = "decentralized"}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("parameter a has no weights"));
  });
}

TEST(WeightStrategies, AnInterruptedRunGoesOnAsIfItHadNotBeen) {
  for (const std::string strategy : {"low_precision_decentralized", "decentralized:peer_selection_mode=shift_one"}) {
    RunWorld(4, [&](Communicator& world) {
      Model model(world, strategy);
      for (int step = 0; step < 3; ++step) model.Step();
      const std::string state = model.synchronizer->SaveState();
      const absl::Status loaded = model.synchronizer->LoadState({state});
      EXPECT_EQ(loaded, absl::OkStatus());
      EXPECT_EQ(model.synchronizer->step(), 3);
      model.Step();
      EXPECT_EQ(model.synchronizer->SaveState() == state, false);
      std::string damaged = state;
      damaged.pop_back();
      EXPECT_THAT(std::string(model.synchronizer->LoadState({damaged}).message()), HasSubstr("is damaged"));
      EXPECT_THAT(std::string(model.synchronizer->LoadState({"junk"}).message()), HasSubstr("was not saved by"));
    });
  }
}

}  // namespace
}  // namespace tutti
