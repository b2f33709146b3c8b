// A synchronizer that tunes itself gives the results of one that does not.
#include "sync/tuned_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tests/harness/world.h"
#include "tutti/synchronizer.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

constexpr int kParameters = 5;
constexpr std::int64_t kCount = 100'000;

// Buckets of one parameter each: larger ones are tried.
std::unique_ptr<Synchronizer> Make(Communicator& world, const std::string& strategy, bool autotune = true,
                                   bool allow_unused = false) {
  const std::vector<Parameter> parameters(kParameters, {"p", DType::kF32, kCount, "100000"});
  absl::StatusOr<std::unique_ptr<Synchronizer>> made = Synchronizer::Create(world, parameters,
                                                                            {.strategy = strategy,
                                                                             .bucket_bytes = 64 << 10,
                                                                             .first_bucket_bytes = 64 << 10,
                                                                             .allow_unused = allow_unused,
                                                                             .autotune = autotune});
  EXPECT_TRUE(made.ok()) << made.status();
  return made.ok() ? *std::move(made) : nullptr;
}

float* ViewOf(const Synchronizer& synchronizer, int i) {
  return static_cast<float*>(synchronizer.GradientView(i).get());
}

void Add(Synchronizer& synchronizer, Rank rank, int step) {
  for (int i = kParameters - 1; i >= 0; --i) {
    float* const view = ViewOf(synchronizer, i);
    for (std::int64_t k = 0; k < kCount; ++k) view[k] += static_cast<float>((rank + 1) * (i + 1) + step % 7);
    synchronizer.MarkReady(i);
  }
}

// One backward that adds to the gradients that are there.
absl::Status Backward(Synchronizer& synchronizer, Rank rank, int step) {
  if (absl::Status begun = synchronizer.BeginBackward(); !begun.ok()) return begun;
  Add(synchronizer, rank, step);
  return synchronizer.FinishBackward();
}

void ExpectSums(const Synchronizer& synchronizer, int size, int step) {
  for (int i = 0; i < kParameters; ++i) {
    float sum = 0;
    for (Rank rank = 0; rank < size; ++rank) sum += static_cast<float>((rank + 1) * (i + 1) + step % 7);
    const float* const view = ViewOf(synchronizer, i);
    ASSERT_EQ(view[0], sum) << "parameter " << i << " step " << step;
    ASSERT_EQ(view[kCount - 1], sum) << "parameter " << i << " step " << step;
  }
}

constexpr char kSum[] = "gradient_allreduce:average=false";

TEST(TunedExchange, SumsInEveryStepAndEndsAsItSaid) {
  for (const int ranks_per_node : {0, 2}) {
    RunWorld(4, {.ranks_per_node = ranks_per_node}, [&](Communicator& world) {
      const std::unique_ptr<Synchronizer> synchronizer = Make(world, kSum);
      ASSERT_NE(synchronizer, nullptr);
      ASSERT_EQ(synchronizer->tuning().state, TuningState::kTuning);
      const int most = synchronizer->tuning().most_backwards;
      EXPECT_LE(most, 60);
      int step = 0;
      for (; synchronizer->tuning().state == TuningState::kTuning && step <= most; ++step) {
        synchronizer->ZeroGradients();
        ASSERT_EQ(Backward(*synchronizer, world.rank(), step), absl::OkStatus());
        ExpectSums(*synchronizer, world.size(), step);
      }
      const TuningReport& report = synchronizer->tuning();
      EXPECT_EQ(report.state, TuningState::kDone);
      EXPECT_LE(report.backwards, most);
      EXPECT_GE(report.trials.size(), 3);
      EXPECT_EQ(report.trials[0].tuning, report.start.tuning);
      EXPECT_GE(synchronizer->moves(), 3);
      EXPECT_EQ(synchronizer->step(), step);
      // All ranks report the same, and so have the same buckets.
      std::string text = ToString(report.choice.tuning);
      for (const TuningTrial& trial : report.trials) text += ToString(trial.tuning) + std::to_string(trial.seconds);
      EXPECT_EQ(synchronizer->Agree("tuning", {{"tuning", text}}), absl::OkStatus());
      const std::int64_t moves = synchronizer->moves();
      for (int more = 0; more < 12; ++more) {
        synchronizer->ZeroGradients();
        ASSERT_EQ(Backward(*synchronizer, world.rank(), more), absl::OkStatus());
        ExpectSums(*synchronizer, world.size(), more);
      }
      EXPECT_EQ(synchronizer->moves(), moves);
    });
  }
}

TEST(TunedExchange, KeepsGradientsThatAreAccumulatedAndMemoryThatIsHeld) {
  RunWorld(2, [](Communicator& world) {
    const std::unique_ptr<Synchronizer> tuned = Make(world, kSum);
    const std::unique_ptr<Synchronizer> plain = Make(world, kSum, /*autotune=*/false);
    ASSERT_TRUE(tuned != nullptr && plain != nullptr);
    const std::shared_ptr<void> held = tuned->GradientView(0);
    for (int step = 0; step <= tuned->tuning().most_backwards; ++step) {
      for (Synchronizer* synchronizer : {tuned.get(), plain.get()}) {
        if (step % 3 == 0) synchronizer->ZeroGradients();  // otherwise the sums of the last step count once
        if (step % 2 == 0) {
          synchronizer->set_synchronize(false);
          ASSERT_EQ(Backward(*synchronizer, world.rank(), step), absl::OkStatus());
          synchronizer->set_synchronize(true);
        }
        ASSERT_EQ(Backward(*synchronizer, world.rank(), step + 1), absl::OkStatus());
      }
      for (int i = 0; i < kParameters; ++i) {
        ASSERT_EQ(std::memcmp(ViewOf(*tuned, i), ViewOf(*plain, i), kCount * sizeof(float)), 0) << "step " << step;
      }
    }
    EXPECT_EQ(tuned->tuning().state, TuningState::kDone);
    static_cast<float*>(held.get())[kCount - 1] = 1;  // still memory
  });
}

TEST(TunedExchange, KnowsWhichParametersWereUsed) {
  RunWorld(2, [](Communicator& world) {
    const std::unique_ptr<Synchronizer> synchronizer = Make(world, kSum, true, /*allow_unused=*/true);
    ASSERT_NE(synchronizer, nullptr);
    for (int step = 0; step < 20; ++step) {
      synchronizer->ZeroGradients();
      ASSERT_EQ(synchronizer->BeginBackward(), absl::OkStatus());
      EXPECT_EQ(synchronizer->used(2), step == 0 || step % 2 == 1) << "step " << step;  // those of the last step
      for (int i = 0; i < kParameters; ++i) {
        if (i != 2 || (step % 2 == 0 && world.rank() == 0)) synchronizer->MarkReady(i);
      }
      ASSERT_EQ(synchronizer->FinishBackward(), absl::OkStatus());
      EXPECT_EQ(synchronizer->used(2), step % 2 == 0) << "step " << step;
    }
  });
}

TEST(TunedExchange, SavesStatesThatFitAnyTuning) {
  RunWorld(2, [](Communicator& world) {
    const std::unique_ptr<Synchronizer> tuned = Make(world, kSum);
    const std::unique_ptr<Synchronizer> plain = Make(world, kSum, /*autotune=*/false);
    ASSERT_TRUE(tuned != nullptr && plain != nullptr);
    const std::string before = tuned->SaveState();
    while (tuned->moves() == 0) {
      tuned->ZeroGradients();
      ASSERT_EQ(Backward(*tuned, world.rank(), 0), absl::OkStatus());
    }
    ASSERT_NE(tuned->bucket_count(), plain->bucket_count());
    const std::string during = tuned->SaveState();
    EXPECT_EQ(plain->LoadState({during}), absl::OkStatus());
    EXPECT_EQ(plain->step(), tuned->step());
    EXPECT_EQ(tuned->LoadState({before}), absl::OkStatus());
    EXPECT_EQ(tuned->step(), 0);
    EXPECT_EQ(tuned->tuning().state, TuningState::kTuning);
    tuned->ZeroGradients();
    ASSERT_EQ(Backward(*tuned, world.rank(), 1), absl::OkStatus());
    ExpectSums(*tuned, 2, 1);
  });
}

TEST(TunedExchange, EndsWithTheErrorOfALostRank) {
  RunWorld(3, [](Communicator& world) {
    const std::unique_ptr<Synchronizer> synchronizer = Make(world, kSum);
    ASSERT_NE(synchronizer, nullptr);
    absl::Status status;
    for (int step = 0; status.ok() && step < 60; ++step) {
      if (world.rank() == 1 && step == 7) {  // the first trial has ended: the ranks are about to compare times
        world.Abort(absl::AbortedError("rank 1 gives up"));
      }
      synchronizer->ZeroGradients();
      status = Backward(*synchronizer, world.rank(), step);
    }
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1 gives up"));
  });
}

TEST(TunedExchange, IsRefusedWhereRanksDiffer) {
  RunWorld(2, [](Communicator& world) {
    const absl::Status status =
        Synchronizer::Create(world, {{"p", DType::kF32, 4, "4"}}, {.autotune = world.rank() == 1}).status();
    EXPECT_THAT(std::string(status.message()), HasSubstr("autotune"));
  });
}

TEST(TunedExchange, SaysThatThereIsNothingToTune) {
  testing::internal::CaptureStderr();
  RunWorld(2, [](Communicator& world) {
    const std::unique_ptr<Synchronizer> synchronizer = Make(world, "bytegrad");
    ASSERT_NE(synchronizer, nullptr);
    EXPECT_EQ(synchronizer->tuning().state, TuningState::kNothingToTune);
    EXPECT_THAT(synchronizer->tuning().reason, HasSubstr("codec=uint8_block"));
  });
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "tutti: autotuning has nothing to tune: with codec=uint8_block the values that are exchanged depend on the "
            "buckets\n");
}

}  // namespace
}  // namespace tutti
