// How many steps of a rank an average of async may be late. Rank 0 trains. The test plays rank 1, and so holds a round
// back until rank 0 has come to a certain step. No test waits for a time.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "sync/async_average.h"
#include "sync/caller.h"
#include "sync/weight_buckets.h"
#include "tests/harness/world.h"
#include "tutti/algorithm.h"

namespace tutti {
namespace {

// The numbers by which background threads agree on a round.
constexpr std::int32_t kStop = 0;
constexpr std::int32_t kSkip = 2;
constexpr std::int32_t kGo = 3;
// In the second number of an answer: some rank trains.
constexpr std::int32_t kSomeRank = std::numeric_limits<std::int32_t>::max() - 1;

// How far rank 0 is, as numbers of its steps.
struct Course {
  std::atomic<int> snapped{0};  // the first step that takes a snapshot after the last average
  std::atomic<int> entered{0};  // the step that has begun
  std::atomic<int> agreed{0};   // rounds on which all ranks have agreed
  std::atomic<int> skipped{0};  // rounds that did not begin
  std::atomic<bool> failed{false};
};

// Waits until `happened` returns true; false when that cannot happen any more.
bool WaitUntil(const Course& course, const std::function<bool()>& happened) {
  const absl::Time deadline = absl::Now() + absl::Minutes(1);
  while (!happened()) {
    EXPECT_LT(absl::Now(), deadline);
    if (course.failed || absl::Now() >= deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

// A model of one weight.
struct SmallModel {
  explicit SmallModel(Communicator& world)
      : caller(*Caller::Create(world, CallOwner::Kind::kSynchronizer)), communicator(*world.Split(0, world.rank())) {
    weights = *WeightBuckets::Create(*communicator, *memory, *ParseStrategy("async"), parameters,
                                     LayOutBuckets(parameters, 1 << 20, 1 << 20));
  }

  float weight = 0;
  const std::vector<Parameter> parameters = {{.name = "w", .count = 1, .shape = "1", .weights = &weight}};
  const Caller caller;
  std::unique_ptr<Communicator> communicator;
  const std::unique_ptr<BucketMemory> memory = *BucketMemory::Create(*communicator, MemoryKind::kHost);
  std::unique_ptr<WeightBuckets> weights;
};

// Rank 0: adds 1 to its weight in every step.
class Trainer {
 public:
  Trainer(Communicator& world, Course& course, std::int64_t max_staleness)
      : course_(course),
        model_(world),
        average_(std::make_unique<AsyncAverage>(model_.caller, world, std::move(model_.communicator),
                                                std::move(model_.weights), absl::Milliseconds(1), max_staleness)) {}
  ~Trainer() { average_ = nullptr; }

  // Makes a step; no step follows a step that is an error.
  absl::Status Step() {
    ++course_.entered;
    walked_ = ++model_.weight;
    absl::Status status = average_->Step(statistics_);
    if (!status.ok()) course_.failed = true;
    return status;
  }
  // Makes steps until one takes a snapshot. No round may be under way.
  void Snap() {
    auto& snapshot = *reinterpret_cast<float*>(average_->weights().buckets()[0].in());
    snapshot = 0;  // no weight after a step
    do {
      course_.snapped = course_.entered + 1;
      EXPECT_EQ(Step(), absl::OkStatus());
      std::this_thread::yield();
    } while (snapshot == 0 && !course_.failed);
  }
  void SnapAndWaitUntilAgreed() {
    const int rounds = course_.agreed;
    Snap();
    WaitUntil(course_, [&] { return course_.agreed > rounds; });
  }
  // Waits until a round has been skipped for which this rank has answered after the call, and until the background
  // thread knows so.
  void WaitUntilSkipped() {
    const int skipped = course_.skipped;  // the next answer may have been given already
    WaitUntil(course_, [&] { return course_.skipped >= skipped + 3; });
  }
  // Makes steps until an average has arrived, and returns how many steps after its snapshot that was. The weight of
  // rank 1 is 0, and that of rank 0 has grown by 1 in each step since.
  int StepsFromSnapshotToAverage() {
    do {
      EXPECT_EQ(Step(), absl::OkStatus());
    } while (!arrived() && !course_.failed);
    const float snapshot = 2 * (walked_ - model_.weight);
    return static_cast<int>(walked_ - snapshot);
  }
  // Makes steps until the first average has arrived, and returns the number of the step that took its snapshot.
  int SnapshotOfTheFirstAverage() {
    const int staleness = StepsFromSnapshotToAverage();
    return course_.entered - staleness;
  }
  int steps() const { return course_.entered; }
  int steps_since_snapped() const { return course_.entered - course_.snapped; }
  bool arrived() const { return model_.weight != walked_; }
  absl::Duration waited() const { return statistics_.exposed; }
  AsyncAverage& average() { return *average_; }

 private:
  Course& course_;
  SmallModel model_;
  SyncStatistics statistics_;
  float walked_ = 0;  // the weight after the last step, before an average was applied
  std::unique_ptr<AsyncAverage> average_;
};

// Rank 1, which the test plays.
class Peer {
 public:
  Peer(Communicator& world, Course& course) : course_(course), model_(world) {}

  void Agree() {
    while (!course_.failed && Say(kGo) != kGo) {
    }
    ++course_.agreed;
  }
  void Average() {
    model_.weights->TakeSnapshot();
    model_.weights->Launch(0, 0, model_.caller.Sign(Purpose::kStep, rounds_, {}));
    SyncStatistics statistics;
    EXPECT_EQ(model_.weights->Finish(statistics), absl::OkStatus());
  }
  // Lets no round begin until rank 0 ends, or until `happened` returns true.
  void SkipRounds(const std::function<bool()>& happened = [] { return false; }) {
    while (!happened() && !course_.failed && Say(kSkip) != kStop) ++course_.skipped;
  }
  Communicator& communicator() { return *model_.communicator; }

 private:
  std::int32_t Say(std::int32_t answer) {
    const CallOptions call = model_.caller.Sign(Purpose::kStep, ++rounds_, {});
    std::int32_t least[] = {answer, kSomeRank};
    const absl::Status status = communicator().AllReduce(least, least, 2, DType::kI32, ReduceOp::kMin, call).Wait();
    EXPECT_EQ(status, absl::OkStatus());
    if (status.ok()) return least[0];
    course_.failed = true;
    return kStop;
  }

  Course& course_;
  SmallModel model_;
  std::uint64_t rounds_ = 0;
};

void RunPair(std::int64_t max_staleness, const std::function<void(Trainer&)>& train,
             const std::function<void(Peer&, Course&)>& play, absl::Duration timeout = absl::Seconds(60)) {
  Course course;
  RunWorld(2, {.communicator = {.timeout = timeout}}, [&](Communicator& world) {
    if (world.rank() == 0) {
      Trainer trainer(world, course, max_staleness);
      train(trainer);
    } else {
      Peer peer(world, course);
      play(peer, course);
    }
  });
}

constexpr int kRounds = 4;

class AsyncStaleness : public ::testing::TestWithParam<int> {};

// Every round is held back until rank 0 is in the step that must not end without the round's average.
TEST_P(AsyncStaleness, NeverExceedsTheBound) {
  const int bound = GetParam();
  RunPair(
      bound,
      [&](Trainer& trainer) {
        for (int round = 0; round < kRounds; ++round) {
          trainer.SnapAndWaitUntilAgreed();
          const int staleness = trainer.StepsFromSnapshotToAverage();
          EXPECT_LE(staleness, bound);
          EXPECT_GT(staleness, 0);
          // The staleness is less than the bound only if the snapshot was taken anew before it left.
          EXPECT_TRUE(staleness == bound || staleness < trainer.steps_since_snapped()) << staleness;
        }
      },
      [&](Peer& peer, Course& course) {
        for (int round = 0; round < kRounds; ++round) {
          peer.Agree();
          WaitUntil(course, [&] { return course.entered >= course.snapped + bound; });
          peer.Average();
        }
        peer.SkipRounds();
      });
}

INSTANTIATE_TEST_SUITE_P(Bounds, AsyncStaleness, ::testing::Values(1, 2, 3, 8));

TEST(AsyncStaleness, HasNoBoundByDefaultAndNothingIsWaitedFor) {
  constexpr int kSteps = 1000;
  RunPair(
      0,
      [&](Trainer& trainer) {
        for (int round = 0; round < kRounds; ++round) {
          trainer.SnapAndWaitUntilAgreed();
          EXPECT_GE(trainer.StepsFromSnapshotToAverage(), kSteps);
        }
        EXPECT_EQ(trainer.waited(), absl::ZeroDuration());
      },
      [&](Peer& peer, Course& course) {
        for (int round = 0; round < kRounds; ++round) {
          peer.Agree();
          WaitUntil(course, [&] { return course.entered >= course.snapped + kSteps; });
          peer.Average();
        }
        peer.SkipRounds();
      });
}

// Rank 1 does not agree to a round, like a rank that is stopped or has not made its first step. Rank 0 then waits for
// nothing, and takes its snapshot anew.
TEST(AsyncStaleness, DoesNotGrowAndNothingIsWaitedForWhileOneDoesNotAgree) {
  constexpr int kSteps = 1000;
  RunPair(
      8,
      [&](Trainer& trainer) {
        for (int step = 0; step < kSteps; ++step) ASSERT_EQ(trainer.Step(), absl::OkStatus());
        EXPECT_EQ(trainer.waited(), absl::ZeroDuration());
        EXPECT_LE(trainer.StepsFromSnapshotToAverage(), 8);
      },
      [&](Peer& peer, Course& course) {
        WaitUntil(course, [&] { return course.entered >= kSteps; });
        peer.Agree();
        peer.Average();
        peer.SkipRounds();
      });
}

// A bound that no training reaches asks for no other snapshot than the first.
TEST(AsyncStaleness, MayBeAsLargeAsANumberCanBe) {
  constexpr int kSteps = 1000;
  RunPair(
      std::numeric_limits<std::int64_t>::max(),
      [&](Trainer& trainer) {
        trainer.SnapAndWaitUntilAgreed();
        EXPECT_GE(trainer.StepsFromSnapshotToAverage(), kSteps);
      },
      [&](Peer& peer, Course& course) {
        peer.Agree();
        WaitUntil(course, [&] { return course.entered >= course.snapped + kSteps; });
        peer.Average();
        peer.SkipRounds();
      });
}

// Steps of the interval before a round are in the weights that travel.
TEST(AsyncStaleness, DoesNotCountTheTimeBeforeARound) {
  constexpr int kSteps = 1000;
  RunPair(
      0,
      [&](Trainer& trainer) {
        for (int step = 0; step < kSteps; ++step) ASSERT_EQ(trainer.Step(), absl::OkStatus());
        EXPECT_GT(trainer.SnapshotOfTheFirstAverage(), kSteps);
      },
      [&](Peer& peer, Course& course) {
        WaitUntil(course, [&] { return course.entered >= kSteps; });
        peer.Agree();
        peer.Average();
        peer.SkipRounds();
      });
}

// Rank 1 is not ready when rank 0 has its snapshot.
TEST(AsyncStaleness, DoesNotCountTheTimeForWhichAPeerIsWaitedFor) {
  constexpr int kSteps = 1000;
  std::atomic<bool> has_trained{false};
  RunPair(
      0,
      [&](Trainer& trainer) {
        trainer.Snap();
        trainer.WaitUntilSkipped();
        for (int step = 0; step < kSteps; ++step) ASSERT_EQ(trainer.Step(), absl::OkStatus());
        const int step = trainer.steps();
        has_trained = true;
        EXPECT_GE(trainer.SnapshotOfTheFirstAverage(), step - kSteps + 1);
      },
      [&](Peer& peer, Course& /*course*/) {
        peer.SkipRounds([&] { return has_trained.load(); });
        peer.Agree();
        peer.Average();
        peer.SkipRounds();
      });
}

TEST(AsyncStaleness, DoesNotCountAPause) {
  constexpr int kSteps = 1000;
  std::atomic<bool> resumed{false};
  RunPair(
      0,
      [&](Trainer& trainer) {
        trainer.Snap();
        trainer.average().Pause();
        trainer.WaitUntilSkipped();
        for (int step = 0; step < kSteps; ++step) ASSERT_EQ(trainer.Step(), absl::OkStatus());
        trainer.average().Resume();
        const int step = trainer.steps();
        resumed = true;
        EXPECT_GT(trainer.SnapshotOfTheFirstAverage(), step);
      },
      [&](Peer& peer, Course& /*course*/) {
        peer.SkipRounds([&] { return resumed.load(); });
        peer.Agree();
        peer.Average();
        peer.SkipRounds();
      });
}

// The average of a round that is under way when a rank pauses arrives within the bound; no further round begins.
TEST(AsyncStaleness, IsBoundedWhilePaused) {
  RunPair(
      8,
      [&](Trainer& trainer) {
        trainer.SnapAndWaitUntilAgreed();
        trainer.average().Pause();
        EXPECT_LE(trainer.StepsFromSnapshotToAverage(), 8);
        for (int step = 0; step < 100; ++step) {
          ASSERT_EQ(trainer.Step(), absl::OkStatus());
          EXPECT_FALSE(trainer.arrived());
        }
        trainer.average().Resume();
        EXPECT_LE(trainer.StepsFromSnapshotToAverage(), 8);
      },
      [&](Peer& peer, Course& course) {
        for (int round = 0; round < 2; ++round) {
          peer.Agree();
          if (round == 0) WaitUntil(course, [&] { return course.entered >= course.snapped + 8; });
          peer.Average();
        }
        peer.SkipRounds();
      });
}

// The steps of a pause count towards the age of a snapshot.
TEST(AsyncStaleness, CountsTheStepsOfAPause) {
  std::atomic<bool> resumed{false};
  RunPair(
      8,
      [&](Trainer& trainer) {
        trainer.Snap();
        trainer.average().Pause();
        for (int step = 0; step < 100; ++step) ASSERT_EQ(trainer.Step(), absl::OkStatus());
        trainer.average().Resume();
        resumed = true;
        EXPECT_LE(trainer.StepsFromSnapshotToAverage(), 8);
      },
      [&](Peer& peer, Course& /*course*/) {
        peer.SkipRounds([&] { return resumed.load(); });
        peer.Agree();
        peer.Average();
        peer.SkipRounds();
      });
}

absl::Status StepUntilError(Trainer& trainer) {
  const absl::Time deadline = absl::Now() + absl::Minutes(1);
  absl::Status status;
  while (status.ok() && absl::Now() < deadline) status = trainer.Step();
  return status;
}

TEST(AsyncStaleness, APeerThatNeverComesEndsTheWait) {
  RunPair(
      8,
      [&](Trainer& trainer) {
        trainer.SnapAndWaitUntilAgreed();
        EXPECT_EQ(StepUntilError(trainer).code(), absl::StatusCode::kDeadlineExceeded);
      },
      [&](Peer& peer, Course& course) {
        peer.Agree();
        WaitUntil(course, [&] { return course.failed.load(); });
      },
      absl::Seconds(1));
}

TEST(AsyncStaleness, APeerThatFailsEndsTheWait) {
  RunPair(
      8,
      [&](Trainer& trainer) {
        trainer.SnapAndWaitUntilAgreed();
        EXPECT_EQ(StepUntilError(trainer).code(), absl::StatusCode::kAborted);
      },
      [&](Peer& peer, Course& course) {
        peer.Agree();
        WaitUntil(course, [&] { return course.entered >= course.snapped + 8; });
        peer.communicator().Abort(absl::AbortedError("the loss is not what it was"));
      });
}

}  // namespace
}  // namespace tutti
