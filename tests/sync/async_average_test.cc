// async: weights are averaged in the background of training, and nothing that a rank has learnt is lost. No test waits
// for a time; tests that need a round train on until a round has happened.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/harness/rank_barrier.h"
#include "tests/harness/training.h"

namespace tutti {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kAsync[] = "async:sync_interval_ms=1";
constexpr float kRate = 1.0f / 1024;

// The pace of a rank: its weights change by (rank + 1)² / 1024 in every step, so that no rank is where the average is.
double PaceOf(int rank) { return (rank + 1) * (rank + 1); }

Training Walks(int size, const std::string& strategy = kAsync) {
  Training training = RandomTraining(strategy, size, 1);
  training.lr = kRate;
  for (int rank = 0; rank < size; ++rank) {
    training.gradients[0][rank] = Floats(training.initial.size(), -static_cast<float>(PaceOf(rank)));
  }
  return training;
}

// A rank whose weights change at its pace.
class Walker {
 public:
  Walker(const Training& training, Communicator& world, Replica& replica)
      : gradient_(training.gradients[0][world.rank()]), replica_(replica) {}

  // Makes a step; returns true when an average has arrived: the weights are not where this rank's own steps would lead.
  bool Step() {
    Floats expected = replica_.weights();
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] -= kRate * gradient_[i];
    const absl::Status status = replica_.Step(gradient_, kRate);
    EXPECT_TRUE(status.ok()) << status;
    ++steps_;
    return replica_.weights() != expected;
  }

  // Makes steps until `done` returns true. `arrived`: an average has arrived in the last step.
  void StepUntil(const std::function<bool(bool arrived)>& done) {
    const absl::Time deadline = absl::Now() + absl::Minutes(2);
    while (!done(Step())) {
      ASSERT_LT(absl::Now(), deadline) << "no round in two minutes";
      std::this_thread::yield();
    }
  }

  int steps() const { return steps_; }

 private:
  const Floats gradient_;
  Replica& replica_;
  int steps_ = 0;
};

// Two ranks, the first of which applies an average that the second has not applied.
class Pair {
 public:
  // Rank 0: makes steps until an average has arrived.
  void Arrive(Walker& walker) {
    walker.StepUntil([this](bool arrived) {
      ++steps_;
      return arrived;
    });
    arrived_ = true;
  }
  // Rank 1: makes a step each time when rank 0 had many steps for the average of a snapshot, until an average has
  // arrived at rank 0. Returns whether one has arrived here, too.
  bool StepUntilArrived(Walker& walker) {
    bool arrived = false;
    while (!arrived_ && !::testing::Test::HasFailure()) {
      arrived |= walker.Step();
      const int next = steps_ + 10000;
      while (!arrived_ && steps_ < next && !::testing::Test::HasFailure()) std::this_thread::yield();
    }
    return arrived;
  }

 private:
  std::atomic<int> steps_{0};  // of rank 0
  std::atomic<bool> arrived_{false};
};

// The right average over the ranks when rank r has made steps[r] steps.
Floats AverageAfter(const Training& training, const std::vector<int>& steps) {
  double walked = 0;
  for (std::size_t rank = 0; rank < steps.size(); ++rank) {
    walked += steps[rank] * PaceOf(static_cast<int>(rank)) * kRate / static_cast<double>(steps.size());
  }
  Floats average = training.initial;
  for (float& weight : average) weight += static_cast<float>(walked);
  return average;
}

void ExpectNear(const Floats& is, const Floats& expected) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_NEAR(is[i], expected[i], 1e-4 * std::max(1.0f, std::abs(expected[i]))) << "weight " << i;
  }
}

TEST(AsyncAverage, RefusesAnIntervalAsLongAsTheTimeout) {
  RunWorld(1, [&](Communicator& world) {  // the timeout of the world is 60 s, too
    float weight = 0;
    const absl::Status refused =
        Synchronizer::Create(world, {{.name = "w", .count = 1, .shape = "1", .weights = &weight}},
                             {.strategy = "async:sync_interval_ms=60000"})
            .status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(refused.message().find("sync_interval_ms of 60000 must be less"), absl::string_view::npos) << refused;
  });
}

// No thread can be started: each would have a stack of more memory than a process can address.
TEST(AsyncAverage, NoThreadIsAnErrorThatThePeersHear) {
  RankBarrier ranks(2);
  pthread_attr_t usual, too_large;
  ASSERT_EQ(::pthread_getattr_default_np(&usual), 0);
  ASSERT_EQ(::pthread_getattr_default_np(&too_large), 0);
  ASSERT_EQ(::pthread_attr_setstacksize(&too_large, std::size_t{1} << 48), 0);
  RunWorld(2, {.barrier = &ranks}, [&](Communicator& world) {
    float weight = 0;
    ranks.Wait();  // both ranks have their threads
    if (world.rank() == 0) {
      ASSERT_EQ(::pthread_setattr_default_np(&too_large), 0);
    }
    ranks.Wait();
    const absl::Status refused =
        Synchronizer::Create(world, {{.name = "w", .count = 1, .shape = "1", .weights = &weight}},
                             {.strategy = "async"})
            .status();
    ranks.Wait();
    if (world.rank() == 0) {
      ASSERT_EQ(::pthread_setattr_default_np(&usual), 0);
    }
    EXPECT_THAT(refused.ToString(), AllOf(HasSubstr("cannot start the thread of async"), HasSubstr("(ulimit -u)")));
    EXPECT_THAT(world.Barrier().Wait().ToString(), HasSubstr("cannot start the thread of async"));
  });
}

// Parameters: the size of the world, and the bound on staleness.
class AsyncInWorldOf : public ::testing::TestWithParam<std::tuple<int, int>> {
 protected:
  int size() const { return std::get<0>(GetParam()); }
  std::string Every(int interval_ms) const {
    return absl::StrCat("async:sync_interval_ms=", interval_ms, ",max_staleness=", std::get<1>(GetParam()));
  }
};

TEST_P(AsyncInWorldOf, RoundsKeepWhatEveryRankHasLearnt) {
  const int size = this->size();
  const Training training = Walks(size, Every(1));
  std::atomic<int> satisfied{0};
  std::vector<int> steps(size);
  Ranks flushed(size);
  RunReplicas(training, [&](Communicator& world, Replica& replica) {
    Walker walker(training, world, replica);
    int arrived = 0;
    walker.StepUntil([&](bool arrival) {
      if (arrival && ++arrived == 3) ++satisfied;
      return satisfied == size;  // until then the others need this rank's snapshots
    });
    steps[world.rank()] = walker.steps();
    ASSERT_TRUE(replica.synchronizer().Flush().ok());
    flushed[world.rank()] = replica.weights();
  });
  for (const Floats& weights : flushed) EXPECT_EQ(weights, flushed[0]);
  ExpectNear(flushed[0], AverageAfter(training, steps));
}

TEST_P(AsyncInWorldOf, FlushGivesAllTheAverageWithoutARound) {
  const int size = this->size();
  const Training training = Walks(size, Every(50000));
  Ranks flushed(size);
  std::vector<int> steps(size);
  RunReplicas(training, [&](Communicator& world, Replica& replica) {
    Walker walker(training, world, replica);
    for (int step = 0; step < 5 + world.rank(); ++step) EXPECT_FALSE(walker.Step());
    ASSERT_TRUE(replica.synchronizer().Flush().ok());
    steps[world.rank()] = walker.steps();
    flushed[world.rank()] = replica.weights();
  });
  for (const Floats& weights : flushed) EXPECT_EQ(weights, flushed[0]);
  ExpectNear(flushed[0], AverageAfter(training, steps));
}

INSTANTIATE_TEST_SUITE_P(Worlds, AsyncInWorldOf,
                         ::testing::Combine(::testing::Values(2, 3, 5), ::testing::Values(0, 1, 8)));

// Rank 0 has applied the average of a round; rank 1 has not, since it made no step (but for a rank 1 that was very
// early). The share of rank 1 must not be lost.
TEST(AsyncAverage, FlushAppliesARoundThatOnlySomeHaveApplied) {
  const Training training = Walks(2);
  Pair pair;
  std::vector<int> steps(2);
  Ranks flushed(2);
  RunReplicas(training, [&](Communicator& world, Replica& replica) {
    // The weights are so far apart that a round which only one rank applied would show.
    for (float& weight : replica.weights()) weight += world.rank() == 0 ? 8.0f : -8.0f;
    Walker walker(training, world, replica);
    if (world.rank() == 0) {
      pair.Arrive(walker);
    } else {
      pair.StepUntilArrived(walker);
    }
    ASSERT_TRUE(replica.synchronizer().Flush().ok());
    steps[world.rank()] = walker.steps();
    flushed[world.rank()] = replica.weights();
  });
  EXPECT_EQ(flushed[0], flushed[1]);
  ExpectNear(flushed[0], AverageAfter(training, steps));
}

TEST(AsyncAverage, PausesAndResumesAnyNumberOfTimes) {
  const Training training = Walks(3);
  std::atomic<int> resumed{0};
  RunReplicas(training, [&](Communicator& world, Replica& replica) {
    Walker walker(training, world, replica);
    Synchronizer& synchronizer = replica.synchronizer();
    if (world.rank() == 0) {
      for (int time = 0; time < 3; ++time) {
        synchronizer.Pause();
        if (time > 0) synchronizer.Pause();
        for (int step = 0; step < 100; ++step) EXPECT_FALSE(walker.Step()) << "a round while this rank is paused";
        synchronizer.Resume();
        if (time > 0) synchronizer.Resume();
        walker.StepUntil([](bool arrived) { return arrived; });
      }
      ++resumed;
    }
    walker.StepUntil([&](bool) { return resumed == 1; });
  });
}

TEST(AsyncAverage, IsForgottenByOtherStrategies) {
  const Training training = Walks(2, "gradient_allreduce");
  RunReplicas(training, [&](Communicator& world, Replica& replica) {
    replica.synchronizer().Pause();
    ASSERT_TRUE(replica.Step(training.gradients[0][world.rank()], kRate).ok());
    replica.synchronizer().Resume();
  });
}

TEST(AsyncAverage, TheFirstStepsAverageGradients) {
  const Training training = Walks(4, "async:sync_interval_ms=1,warmup_steps=3");
  RunReplicas(training, [&](Communicator& world, Replica& replica) {
    for (int step = 0; step < 3; ++step) {
      EXPECT_TRUE(replica.synchronizer().exchanges_gradients());
      ASSERT_TRUE(replica.Step(training.gradients[0][world.rank()], kRate).ok());
      EXPECT_EQ(replica.synchronized_gradient()[0], -7.5f);
    }
    EXPECT_FALSE(replica.synchronizer().exchanges_gradients());
    ASSERT_TRUE(replica.Step(training.gradients[0][world.rank()], kRate).ok());
    EXPECT_EQ(replica.synchronized_gradient()[0], -static_cast<float>(PaceOf(world.rank())));
    EXPECT_EQ(replica.synchronizer().step(), 4);
  });
}

// The sum of three equal numbers, divided by three, is another one now and then.
TEST(AsyncAverage, AFlushInTheWarmUpLeavesEqualWeightsAlone) {
  const Training training = RandomTraining("async:sync_interval_ms=1,warmup_steps=3", 3, 2);
  RunReplicas(training, [&](Communicator& world, Replica& replica) {
    for (int step = 0; step < 2; ++step) {
      ASSERT_EQ(replica.Step(training.gradients[step][world.rank()], kRate), absl::OkStatus());
      const Floats before = replica.weights();
      ASSERT_EQ(replica.synchronizer().Flush(), absl::OkStatus());
      EXPECT_EQ(replica.weights(), before) << "step " << step;
    }
  });
}

TEST(AsyncAverage, AFlushInTheWarmUpAveragesWeightsThatWereWritten) {
  const Training training = RandomTraining("async:sync_interval_ms=1,warmup_steps=3", 2, 2);
  RunReplicas(training, [&](Communicator& world, Replica& replica) {
    ASSERT_EQ(replica.Step(training.gradients[0][world.rank()], kRate), absl::OkStatus());
    replica.weights()[3] = static_cast<float>(2 * world.rank());  // a callback has its own noise on each rank
    ASSERT_EQ(replica.synchronizer().Flush(), absl::OkStatus());
    EXPECT_EQ(replica.weights()[3], 1.0f);
    ASSERT_EQ(replica.Step(training.gradients[1][world.rank()], kRate), absl::OkStatus());
    Floats& weights = replica.weights();
    EXPECT_EQ(
        replica.synchronizer().CheckState({{weights.data(), static_cast<std::int64_t>(4 * weights.size()), "weights"}}),
        absl::OkStatus());
  });
}

TEST(AsyncAverage, ARankThatIsDoneLeavesTheOthersToTrainOn) {
  for (const int size : {2, 4}) {
    const Training training = Walks(size);
    RankBarrier left(size);
    RunWorld(size, {.barrier = &left}, [&](Communicator& world) {
      std::unique_ptr<Replica> replica = Replica::Make(world, training.model, kAsync, training.initial);
      ASSERT_NE(replica, nullptr);
      Walker walker(training, world, *replica);
      for (int step = 0; step < 10; ++step) walker.Step();
      if (world.rank() == 0) replica = nullptr;
      left.Wait();
      if (world.rank() == 0) return;
      for (int step = 0; step < 100; ++step) walker.Step();
    });
  }
}

// An average that was complete when a rank left is still applied by all other ranks.
TEST(AsyncAverage, ARoundOutlivesTheRankThatLeaves) {
  const Training training = Walks(2);
  Pair pair;
  RankBarrier left(2);
  RunWorld(2, {.barrier = &left}, [&](Communicator& world) {
    std::unique_ptr<Replica> replica = Replica::Make(world, training.model, kAsync, training.initial);
    ASSERT_NE(replica, nullptr);
    Walker walker(training, world, *replica);
    if (world.rank() == 0) {
      pair.Arrive(walker);
      replica = nullptr;
      left.Wait();
    } else {
      const bool arrived = pair.StepUntilArrived(walker);
      left.Wait();
      EXPECT_NE(walker.Step(), arrived);
      EXPECT_FALSE(walker.Step());
    }
  });
}

TEST(AsyncAverage, AnExceptionBetweenStepsEndsCleanly) {
  const Training training = Walks(3);
  RankBarrier thrown(3);
  RunWorld(3, {.barrier = &thrown}, [&](Communicator& world) {
    try {
      const std::unique_ptr<Replica> replica = Replica::Make(world, training.model, kAsync, training.initial);
      ASSERT_NE(replica, nullptr);
      Walker walker(training, world, *replica);
      for (int step = 0; step < 20; ++step) {
        walker.Step();
        if (step == 10 && world.rank() == 1) {
          ASSERT_TRUE(replica->synchronizer().BeginForward().ok());
          throw std::runtime_error("the loss is not what it was");
        }
      }
      thrown.Wait();
      walker.Step();
    } catch (const std::runtime_error&) {
      thrown.Wait();
    }
  });
}

TEST(AsyncAverage, AFlushBetweenRoundsAndRoundsAfterAFlush) {
  const Training training = Walks(2);
  std::vector<int> steps(2);
  Ranks flushed(2);
  std::atomic<int> arrived[3] = {0, 0, 0};
  RunReplicas(training, [&](Communicator& world, Replica& replica) {
    Walker walker(training, world, replica);
    for (std::atomic<int>& in_this_turn : arrived) {
      bool mine = false;
      walker.StepUntil([&](bool arrival) {
        if (arrival && !mine) ++in_this_turn;
        mine |= arrival;
        return in_this_turn == 2;
      });
      ASSERT_TRUE(replica.synchronizer().Flush().ok());
    }
    steps[world.rank()] = walker.steps();
    flushed[world.rank()] = replica.weights();
  });
  EXPECT_EQ(flushed[0], flushed[1]);
  ExpectNear(flushed[0], AverageAfter(training, steps));
}

}  // namespace
}  // namespace tutti
