// async: Stop of one rank ends the rounds for good; training and Flush go on without rounds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/harness/rank_barrier.h"
#include "tests/harness/training.h"

namespace tutti {
namespace {

constexpr char kAsync[] = "async:sync_interval_ms=1";

// A training in which every rank has weights of its own, which no step changes.
Training StandingStill(int size, const std::string& strategy = kAsync) {
  Training training = RandomTraining(strategy, size, 1);
  for (Floats& gradient : training.gradients[0]) gradient.assign(gradient.size(), 0.0f);
  return training;
}

void MoveApart(Communicator& world, Replica& replica) {
  for (float& weight : replica.weights()) weight += static_cast<float>(world.rank());
}

absl::Status Step(const Training& training, Communicator& world, Replica& replica) {
  return replica.Step(training.gradients[0][world.rank()], training.lr);
}

TEST(AsyncStop, OneRankEndsTheRoundsOfAll) {
  constexpr int kRanks = 3;
  Training training = StandingStill(kRanks);
  RankBarrier stopped(kRanks);
  training.world.barrier = &stopped;
  Ranks flushed(kRanks);
  RunReplicas(training, [&](Communicator& world, Replica& replica) {
    Synchronizer& synchronizer = replica.synchronizer();
    ASSERT_TRUE(Step(training, world, replica).ok());
    if (world.rank() == 1) synchronizer.Stop();
    stopped.Wait();
    synchronizer.Stop();                               // the rounds have ended; this rank's thread may not know yet
    ASSERT_TRUE(Step(training, world, replica).ok());  // an average that is complete is applied
    MoveApart(world, replica);
    const Floats own = replica.weights();
    for (int step = 0; step < 100; ++step) ASSERT_TRUE(Step(training, world, replica).ok());
    EXPECT_EQ(replica.weights(), own);
    for (int time = 0; time < 2; ++time) {
      ASSERT_TRUE(synchronizer.Flush().ok());
      flushed[world.rank()] = replica.weights();
      synchronizer.Stop();
    }
    EXPECT_NE(replica.weights(), own);
  });
  for (const Floats& weights : flushed) EXPECT_EQ(weights, flushed[0]);
}

// Ranks may be further apart than the timeout.
TEST(AsyncFlush, WaitsForARankThatTrains) {
  Training training = StandingStill(2);
  training.world.communicator.timeout = absl::Seconds(3);
  Ranks flushed(2);
  RunReplicas(training, [&](Communicator& world, Replica& replica) {
    MoveApart(world, replica);
    const absl::Time end = absl::Now() + absl::Seconds(world.rank() == 0 ? 0 : 7);
    while (absl::Now() < end) {
      ASSERT_EQ(Step(training, world, replica), absl::OkStatus());
      absl::SleepFor(absl::Milliseconds(10));
    }
    ASSERT_EQ(replica.synchronizer().Flush(), absl::OkStatus());
    flushed[world.rank()] = replica.weights();
    const absl::Duration waited = replica.synchronizer().TakeStatistics().exposed;
    EXPECT_TRUE(world.rank() == 1 || waited > absl::Seconds(4)) << waited;
  });
  EXPECT_EQ(flushed[0], flushed[1]);
}

TEST(AsyncFlush, NamesARankThatMakesNoStep) {
  Training training = StandingStill(3);
  training.world.communicator.timeout = absl::Seconds(2);
  RunWorldWithLittleTime(3, training.world, [&](Communicator& world, RankBarrier& ranks) {
    const absl::StatusOr<std::unique_ptr<Replica>> made =
        Replica::Create(world, training.model, training.strategy, training.initial);
    if (!ranks.AllOk(made.ok() ? Step(training, world, **made) : made.status())) return;
    Replica& replica = **made;
    absl::Status status;
    if (world.rank() != 1) status = replica.synchronizer().Flush();
    ranks.Wait();
    // The background thread of rank 1 may not have told of the error yet.
    while (world.rank() == 1 && status.ok() && !::testing::Test::HasFailure()) status = Step(training, world, replica);
    for (const absl::Status& told : {status, world.status()}) {
      EXPECT_THAT(told.ToString(),
                  ::testing::HasSubstr(absl::StrCat(
                      "DEADLINE_EXCEEDED: rank 1 has made no step for ", absl::FormatDuration(world.timeout()),
                      ", while another rank waits for it in Flush; it may wait in another")));
    }
  });
}

TEST(AsyncFlush, HearsOfAnErrorOfTheTraining) {
  Training training = StandingStill(2);
  RankBarrier ranks(2);
  training.world.barrier = &ranks;
  RunReplicas(training, [&](Communicator& world, Replica& replica) {
    // An error that rank 1 tells while rank 0 still makes its replica ends the making.
    ranks.Wait();
    if (world.rank() == 0) {
      EXPECT_THAT(replica.synchronizer().Flush().ToString(), ::testing::HasSubstr("the loss is not what it was"));
    } else {
      ASSERT_EQ(Step(training, world, replica), absl::OkStatus());
      world.Abort(absl::AbortedError("the loss is not what it was"));
    }
    ranks.Wait();
  });
}

// Some weights may be those of the average, and others this rank's own.
TEST(AsyncFlush, NoStateIsSavedAfterOneThatFailed) {
  for (const std::string options : {"", ",warmup_steps=1"}) {
    Training training = StandingStill(2, kAsync + options);
    training.world.region_bytes = std::int64_t{64} << 20;
    RunReplicas(training, [&](Communicator& world, Replica& replica) {
      Synchronizer& synchronizer = replica.synchronizer();
      for (int step = 0; step < 2; ++step) ASSERT_EQ(Step(training, world, replica), absl::OkStatus());
      const std::string good = synchronizer.SaveState();
      EXPECT_NE(good, "");
      for (const bool loads : {false, true}) {
        {
          std::vector<Buffer> taken;
          if (world.rank() == 1) taken = TakeFreeMemory(world);
          EXPECT_EQ(synchronizer.Flush().code(), absl::StatusCode::kResourceExhausted);
        }
        EXPECT_EQ(synchronizer.SaveState(), "");
        EXPECT_EQ(loads ? synchronizer.LoadState({good}) : synchronizer.Flush(), absl::OkStatus());
        EXPECT_NE(synchronizer.SaveState(), "");
      }
    });
  }
}

TEST(AsyncStop, MeansNothingToOtherStrategies) {
  const Training training = StandingStill(2, "gradient_allreduce");
  RunReplicas(training, [&](Communicator& world, Replica& replica) {
    replica.synchronizer().Stop();
    EXPECT_TRUE(Step(training, world, replica).ok());
  });
}

// A weight that is equal on all ranks keeps every bit.
TEST(AsyncAverage, CorrectsNothingWhereThereIsNothingToCorrect) {
  for (const int size : {1, 2, 4}) {
    const Training training = StandingStill(size);
    std::atomic<bool> done = false;
    RunReplicas(training, [&](Communicator& world, Replica& replica) {
      for (int step = 0, rounds = 0; rounds < 3 && !done && (size > 1 || step < 1000); ++step) {
        ASSERT_TRUE(Step(training, world, replica).ok());
        rounds += replica.synchronizer().TakeStatistics().payload_bytes > 0 ? 1 : 0;
      }
      done = true;
      EXPECT_EQ(replica.weights(), training.initial);
    });
  }
}

TEST(AsyncStatistics, CountTheWaitForALateRank) {
  for (const std::string strategy : {"async:sync_interval_ms=50000", "decentralized"}) {
    RunReplicas(StandingStill(2, strategy), [&](Communicator& world, Replica& replica) {
      (void)replica.synchronizer().TakeStatistics();
      replica.synchronizer().Stop();
      if (world.rank() == 1) absl::SleepFor(absl::Seconds(1));
      ASSERT_EQ(replica.synchronizer().Flush(), absl::OkStatus());
      const SyncStatistics flushed = replica.synchronizer().TakeStatistics();
      if (world.rank() == 1) return;
      EXPECT_GE(flushed.exposed, absl::Milliseconds(200)) << strategy;
      EXPECT_GE(flushed.communication, absl::Milliseconds(200)) << strategy;
    });
  }
}

TEST(AsyncStatistics, CountWhatAFlushMoves) {
  constexpr int kRanks = 2;
  for (const std::string strategy : {"async:sync_interval_ms=50000", "decentralized"}) {
    const Training training = StandingStill(kRanks, strategy);
    const auto bytes = static_cast<std::int64_t>(training.initial.size() * sizeof(float));
    std::atomic<std::int64_t> wire_bytes = 0;
    RunReplicas(training, [&](Communicator& /*world*/, Replica& replica) {
      (void)replica.synchronizer().TakeStatistics();
      ASSERT_TRUE(replica.synchronizer().Flush().ok());
      const SyncStatistics moved = replica.synchronizer().TakeStatistics();
      EXPECT_EQ(moved.payload_bytes, bytes) << strategy;
      wire_bytes += moved.wire_bytes;
    });
    EXPECT_EQ(wire_bytes, 2 * (kRanks - 1) * bytes) << strategy;  // the same bytes with every schedule
  }
}

TEST(AsyncSteps, AreMadeTogetherInTheWarmUpOnly) {
  const Training training = StandingStill(2, "async:sync_interval_ms=1,warmup_steps=2");
  RunReplicas(training, [&](Communicator& world, Replica& replica) {
    Synchronizer& synchronizer = replica.synchronizer();
    for (const bool together : {true, true, false, false}) {
      EXPECT_EQ(synchronizer.steps_together(), together) << "step " << synchronizer.step();
      // In the warm-up the answer comes from all ranks, later from this rank alone.
      const absl::StatusOr<bool> overflow = synchronizer.AgreeOnOverflow(world.rank() == 1);
      ASSERT_TRUE(overflow.ok());
      EXPECT_EQ(*overflow, together || world.rank() == 1);
      ASSERT_TRUE(Step(training, world, replica).ok());
    }
  });
}

}  // namespace
}  // namespace tutti
