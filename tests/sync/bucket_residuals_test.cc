// Residuals belong to the parameter: they survive buckets that are cut anew, checkpoints, and worlds of another size.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/sync/bucket_training.h"
#include "tests/sync/saved_state.h"

namespace tutti {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kDrainingSteps = 200;  // steps with gradients of zero, in which what was held back arrives
constexpr char kStrategy[] = "bytegrad:error_feedback=true,codec=uint4_block";
const ParameterCounts kCounts = {{"a", 900}, {"b", 3}, {"c", 601}, {"d", 250}};
const Buckets kFirst = {{"a", "b"}, {"c", "d"}};
const Buckets kRebuilt = {{"d"}, {"c", "a"}, {"b"}};  // the bucket of b is too small to be encoded

Gradients Zeros() {
  Gradients zeros;
  for (const auto& [key, count] : kCounts) zeros[key] = Floats(count, 0);
  return zeros;
}

void Add(const Gradients& from, Gradients& to, float factor = 1) {
  for (const auto& [key, values] : from) {
    for (std::size_t i = 0; i < values.size(); ++i) to[key][i] += factor * values[i];
  }
}

// The residuals in `states`, by "key\nname" and element, summed over the ranks.
std::map<std::string, Floats> TotalOf(const std::vector<std::string>& states) {
  std::map<std::string, Floats> total;
  for (const std::string& state : states) {
    for (const SavedBucket& parameter : SavedState::Read(state).buckets) {
      for (const SavedRange& range : parameter.ranges) {
        Floats& sum = total[range.name];
        sum.resize(parameter.count);
        const Floats values = range.floats();
        for (std::size_t i = 0; i < values.size(); ++i) sum[range.first_element + i] += values[i];
      }
    }
  }
  return total;
}

std::string SaveOf(BucketTraining& training) {
  const absl::StatusOr<std::string> state = training.exchange().SaveState();
  EXPECT_TRUE(state.ok()) << state.status();
  return state.ok() ? *state : "";
}

// Expects `results` to equal `due`, except for rounding.
void ExpectNear(const Gradients& results, const Gradients& due) {
  for (const auto& [key, values] : due) {
    double worst = 0;
    for (std::size_t i = 0; i < values.size(); ++i)
      worst = std::max<double>(worst, std::abs(results.at(key)[i] - values[i]));
    EXPECT_LT(worst, 1e-3) << key;
  }
}

TEST(BucketResiduals, FollowTheirParametersIntoOtherBuckets) {
  for (const std::string& transport : WorldTransports()) {
    for (int size : {2, 3, 4, 5}) {
      std::vector<std::string> before(size);
      std::vector<std::string> after(size);
      RunWorld(size, {.transport = transport}, [&](Communicator& world) {
        BucketTraining training(world, kStrategy, kCounts);
        training.SetBuckets(kFirst);
        for (int step = 0; step < 3; ++step) training.Step(RandomGradientsOf(kCounts, 100 * step + world.rank() * 7));
        before[world.rank()] = SaveOf(training);
        training.SetBuckets(kRebuilt);
        after[world.rank()] = SaveOf(training);
      });
      const std::map<std::string, Floats> held_back = TotalOf(before);
      EXPECT_EQ(held_back.size(), 8u);  // residuals of four parameters, in both shots
      EXPECT_EQ(TotalOf(after), held_back);
    }
  }
}

TEST(BucketResiduals, NothingIsLostWhereverBucketsAreCut) {
  for (const int ranks_per_node : {0, 2}) {
    for (const char* const strategy : {"bytegrad:error_feedback=true,codec=topk,density=0.1",
                                       "bytegrad:error_feedback=true,average=false,codec=uint4_block"}) {
      const int size = 4;
      RunWorld(size, {.ranks_per_node = ranks_per_node}, [&](Communicator& world) {
        BucketTraining training(world, strategy, kCounts);
        const bool sums = training.exchange().strategy().find("average=false") != std::string::npos;
        Gradients due = Zeros();
        Gradients arrived = Zeros();
        float scale = 1;
        for (int step = 0; step < 9; ++step) {
          if (step % 3 == 0) training.SetBuckets(step == 3 ? kRebuilt : kFirst);
          if (step == 4) {
            scale = 64;
            ASSERT_EQ(training.exchange().SetLossScale(64), absl::OkStatus());
          }
          Gradients scaled = Zeros();
          for (Rank rank = 0; rank < size; ++rank) {
            const Gradients of_rank = RandomGradientsOf(kCounts, 100 * step + rank * 7);
            Add(of_rank, due, sums ? 1 : 1.0f / static_cast<float>(size));
            if (rank == world.rank()) Add(of_rank, scaled, scale);
          }
          Add(training.Step(scaled), arrived, 1 / scale);
        }
        for (int step = 0; step < kDrainingSteps; ++step) Add(training.Step(Zeros()), arrived, 1 / scale);
        ExpectNear(arrived, due);
      });
    }
  }
}

TEST(BucketResiduals, AResumedTrainingGoesOnBitForBit) {
  RunWorld(3, [](Communicator& world) {
    const auto gradients = [&](int step) { return RandomGradientsOf(kCounts, 100 * step + world.rank() * 7); };
    BucketTraining straight(world, kStrategy, kCounts);
    straight.SetBuckets(kFirst);
    for (int step = 0; step < 3; ++step) straight.Step(gradients(step));
    const std::string state = SaveOf(straight);
    straight.SetBuckets(kRebuilt);
    BucketTraining loaded_last(world, kStrategy, kCounts);
    loaded_last.SetBuckets(kRebuilt);
    loaded_last.Step(gradients(9));  // gradients of another training
    ASSERT_EQ(loaded_last.exchange().LoadState({state}), absl::OkStatus());
    BucketTraining loaded_first(world, kStrategy, kCounts);
    ASSERT_EQ(loaded_first.exchange().LoadState({state}), absl::OkStatus());
    loaded_first.SetBuckets(kRebuilt);
    EXPECT_EQ(loaded_first.exchange().step(), 3);
    for (int step = 3; step < 6; ++step) {
      const Gradients expected = straight.Step(gradients(step));
      EXPECT_EQ(loaded_last.Step(gradients(step)), expected) << step;
      EXPECT_EQ(loaded_first.Step(gradients(step)), expected) << step;
    }
  });
}

TEST(BucketResiduals, AreNotSavedAfterAnExchangeThatFailed) {
  std::barrier<> trained(2);
  RunWorld(2, [&](Communicator& world) {
    BucketTraining training(world, kStrategy, kCounts);
    training.SetBuckets(kFirst);
    training.Step(Zeros());
    EXPECT_NE(SaveOf(training), "");
    trained.arrive_and_wait();
    world.Abort(absl::AbortedError("enough"));
    EXPECT_EQ(training.exchange().Exchange(1, training.data(1)).Wait().code(), absl::StatusCode::kAborted);
    EXPECT_EQ(training.exchange().SaveState().status().code(), absl::StatusCode::kAborted);
  });
}

TEST(BucketResiduals, OfALoadedStateSayHowLongAParameterIs) {
  RunWorld(2, [](Communicator& world) {
    BucketTraining saved(world, kStrategy, kCounts);
    saved.SetBuckets(kFirst);
    saved.Step(RandomGradientsOf(kCounts, world.rank()));
    const std::string state = SaveOf(saved);
    const std::unique_ptr<BucketExchange> other = MakeBucketExchange(world, kStrategy);
    ASSERT_EQ(other->LoadState({state}), absl::OkStatus());
    const auto& [key, count] = *kCounts.begin();
    std::vector<float> shorter(count - 1);
    const absl::Status status = other->SetBucket(0, {DType::kF32, {{key, count - 1}}}, shorter.data());
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("parameter ", key, ": count ", count - 1)));
  });
}

TEST(BucketResiduals, ArriveInAWorldOfAnotherSize) {
  for (const auto& [before, after] : {std::pair(4, 2), std::pair(2, 3), std::pair(3, 1)}) {
    SCOPED_TRACE(testing::Message() << "from " << before << " ranks to " << after);
    std::vector<std::string> states(before);
    std::vector<std::string> saved_again(after);
    Gradients due = Zeros();
    Gradients first = Zeros();
    RunWorld(before, [&, size = before](Communicator& world) {
      BucketTraining training(world, kStrategy, kCounts);
      training.SetBuckets(kFirst);
      const Gradients result = training.Step(RandomGradientsOf(kCounts, world.rank() * 7));
      states[world.rank()] = SaveOf(training);
      if (world.rank() > 0) return;
      Add(result, first);
      for (Rank rank = 0; rank < size; ++rank) {
        Add(RandomGradientsOf(kCounts, rank * 7), due, 1 / static_cast<float>(size));
      }
    });
    RunWorld(after, [&](Communicator& world) {
      BucketTraining training(world, kStrategy, kCounts);
      training.SetBuckets(kRebuilt);
      ASSERT_EQ(training.exchange().LoadState(states), absl::OkStatus());
      saved_again[world.rank()] = SaveOf(training);
      Gradients arrived = first;
      for (int step = 0; step < kDrainingSteps; ++step) Add(training.Step(Zeros()), arrived);
      if (world.rank() != 0 || world.size() == 1) return;
      // What is held back of b waits for a bucket that is large enough.
      arrived["b"] = due["b"];
      ExpectNear(arrived, due);
    });
    // Back in the first world, what was saved again arrives; so does what waited for a larger bucket meanwhile.
    RunWorld(before, [&](Communicator& world) {
      BucketTraining training(world, kStrategy, kCounts);
      training.SetBuckets(kFirst);
      ASSERT_EQ(training.exchange().LoadState(saved_again), absl::OkStatus());
      Gradients arrived = first;
      for (int step = 0; step < kDrainingSteps; ++step) Add(training.Step(Zeros()), arrived);
      if (world.rank() == 0) ExpectNear(arrived, due);
    });
  }
}

TEST(BucketResiduals, WithoutThemTheStateOfAnyOneRankIsEnough) {
  for (const char* const strategy : {"gradient_allreduce", "bytegrad"}) {
    std::string state;
    RunWorld(3, [&](Communicator& world) {
      BucketTraining training(world, strategy, kCounts);
      training.SetBuckets(kFirst);
      training.Step(Zeros());
      if (world.rank() == 1) state = SaveOf(training);
    });
    for (const int size : {1, 2, 3}) {
      RunWorld(size, [&](Communicator& world) {
        BucketTraining training(world, strategy, kCounts);
        ASSERT_EQ(training.exchange().LoadState({state}), absl::OkStatus());
        training.SetBuckets(kRebuilt);
        EXPECT_EQ(training.exchange().step(), 1);
        training.Step(RandomGradientsOf(kCounts, world.rank()));
      });
    }
  }
  std::string with_residuals;
  RunWorld(2, [&](Communicator& world) {
    BucketTraining training(world, kStrategy, kCounts);
    training.SetBuckets(kFirst);
    training.Step(RandomGradientsOf(kCounts, world.rank()));
    if (world.rank() == 0) with_residuals = SaveOf(training);
  });
  RunWorld(2, [&](Communicator& world) {
    BucketTraining training(world, kStrategy, kCounts);
    EXPECT_THAT(std::string(training.exchange().LoadState({with_residuals}).message()),
                HasSubstr("or leave the states out"));
  });
}

TEST(BucketResiduals, StatesThatDoNotFitAreRefusedByAllRanks) {
  RunWorld(2, [](Communicator& world) {
    BucketTraining training(world, kStrategy, kCounts);
    training.SetBuckets(kFirst);
    const std::string first = SaveOf(training);
    training.Step(RandomGradientsOf(kCounts, world.rank() * 7));
    const std::string second = SaveOf(training);
    const auto refusal = [&](const std::string& state) {
      const absl::Status refused = training.exchange().LoadState({state});
      EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_EQ(SaveOf(training), second);
      return std::string(refused.message());
    };
    const bool odd = world.rank() == 1;
    EXPECT_THAT(refusal("junk"), HasSubstr("was not saved by a Synchronizer or BucketExchange"));
    EXPECT_THAT(refusal(odd ? "junk" : second), AllOf(HasSubstr("rank 1"), HasSubstr("was not saved by")));
    EXPECT_THAT(refusal(odd ? first : second), AllOf(HasSubstr("rank 1"), HasSubstr("step of the states")));
    SavedState changed = SavedState::Read(second);
    changed.buckets[0].count += 1;
    EXPECT_THAT(refusal(changed.Write()), AllOf(HasSubstr("parameter a has 901 elements, expected 900")));
    BucketTraining other(world, "bytegrad:error_feedback=true", kCounts);
    EXPECT_THAT(std::string(other.exchange().LoadState({second}).message()), HasSubstr("strategy is"));
    EXPECT_EQ(training.exchange().LoadState({second}), absl::OkStatus());
  });
}

}  // namespace
}  // namespace tutti
