// tutti replay, as a user runs it.
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "bindings/cli/replay/npy.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cli/command_run.h"
#include "tests/sync/qadam_reference.h"
#include "tutti/algorithm.h"

namespace tutti::cli {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kSteps = 6;
constexpr std::int64_t kRanks = 3;
constexpr std::int64_t kCount = 1000;
constexpr double kRate = 0.125;

class ReplayTest : public ::testing::Test {
 protected:
  ReplayTest() {
    for (std::int64_t i = 0; i < kSteps * kRanks * kCount; ++i) {
      gradients_.values.push_back(std::sin(static_cast<float>(i)));
    }
    for (std::int64_t i = 0; i < kCount; ++i) weights_.values.push_back(std::cos(static_cast<float>(i)));
    Write();
  }

  void Write() const {
    ASSERT_TRUE(WriteNpy(gradients_file_.path(), gradients_).ok());
    ASSERT_TRUE(WriteNpy(weights_file_.path(), weights_).ok());
  }

  std::string Files(double lr = kRate) const {
    return " --gradients " + gradients_file_.path() + " --weights " + weights_file_.path() + " --out " +
           out_file_.path() + " --lr " + std::to_string(lr) + " ";
  }

  Array Replay(const std::string& strategy, const std::string& flags = "", double lr = kRate) const {
    const CommandRun run = RunTutti("replay " + strategy + Files(lr) + flags);
    EXPECT_EQ(run.exit_code, 0) << run.err;
    absl::StatusOr<Array> result = ReadNpy(out_file_.path());
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *std::move(result) : Array();
  }

  float gradient(std::int64_t step, std::int64_t rank, std::int64_t i) const {
    return gradients_.values[(step * kRanks + rank) * kCount + i];
  }

  // Plain gradient descent with the exact average.
  Array Descent() const {
    Array expected{.shape = gradients_.shape, .values = {}};
    std::vector<float> x = weights_.values;
    for (std::int64_t step = 0; step < kSteps; ++step) {
      for (std::int64_t i = 0; i < kCount; ++i) {
        const float sum = gradient(step, 0, i) + gradient(step, 1, i) + gradient(step, 2, i);
        x[i] -= static_cast<float>(kRate) * (sum / 3);
      }
      for (std::int64_t rank = 0; rank < kRanks; ++rank) {
        expected.values.insert(expected.values.end(), x.begin(), x.end());
      }
    }
    return expected;
  }

  Array gradients_{.shape = {kSteps, kRanks, kCount}, .values = {}};
  Array weights_{.shape = {kCount}, .values = {}};
  const ScratchFile gradients_file_{"-g.npy"};
  const ScratchFile weights_file_{"-w0.npy"};
  const ScratchFile out_file_{"-w.npy"};
};

TEST_F(ReplayTest, TrainsThroughTheRealSynchronizer) {
  const Array trained = Replay("gradient_allreduce");
  EXPECT_EQ(trained.shape, gradients_.shape);
  EXPECT_EQ(trained.values, Descent().values);
}

TEST_F(ReplayTest, TrainsOverUcxAlike) {
  EXPECT_EQ(Replay("gradient_allreduce", "--transport ucx").values, Descent().values);
}

TEST_F(ReplayTest, LosesALittleInEightBits) {
  const Array exact = Descent();
  const Array lossy = Replay("bytegrad");
  double largest = 0;
  for (std::size_t i = 0; i < exact.values.size(); ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(exact.values[i] - lossy.values[i])));
  }
  EXPECT_GT(largest, 0);
  EXPECT_LT(largest, kSteps * kRate * 2 / 255);
}

TEST_F(ReplayTest, RunsEveryStrategy) {
  for (const Algorithm* algorithm : AllAlgorithms()) {
    const Array trained = Replay(std::string(algorithm->name));
    EXPECT_EQ(trained.shape, gradients_.shape) << algorithm->name;
    for (const float weight : trained.values) ASSERT_TRUE(std::isfinite(weight)) << algorithm->name;
  }
}

// Adam's first step is lr · sign(g), except for eps.
TEST_F(ReplayTest, TakesTheStepsOfAdam) {
  const Array trained = Replay("gradient_allreduce", "--optimizer adam");
  for (std::int64_t i = 0; i < kCount; ++i) {
    const double average = (0.0 + gradient(0, 0, i) + gradient(0, 1, i) + gradient(0, 2, i)) / 3;
    if (std::abs(average) < 1e-4) continue;
    EXPECT_NEAR(trained.values[i], weights_.values[i] - std::copysign(kRate, average), 1e-4 * kRate + 1e-6);
  }
}

// QAdam, Adam in its warm-up and later with exchanged momentum, against a loop over all ranks. Sums of the gradients
// are exact here.
TEST_F(ReplayTest, TakesTheStepsOfQAdam) {
  for (float& gradient : gradients_.values) gradient = std::round(8 * gradient) / 4;
  Write();
  constexpr int kWarmUp = 3;
  QAdamReference reference(kRanks, kWarmUp, /*error_feedback=*/true,
                           std::vector<ReferenceElement>(kCount, {kRate, 0.9, 0.999, 1e-8, 0, 0}), weights_.values);
  Array expected{.shape = gradients_.shape, .values = {}};
  for (auto gradient = gradients_.values.begin(); gradient != gradients_.values.end();) {
    std::vector<std::vector<float>> of_ranks;
    for (std::int64_t rank = 0; rank < kRanks; ++rank, gradient += kCount) {
      of_ranks.emplace_back(gradient, gradient + kCount);
    }
    reference.Step(of_ranks);
    for (std::int64_t rank = 0; rank < kRanks; ++rank) {
      expected.values.insert(expected.values.end(), reference.weights().begin(), reference.weights().end());
    }
  }
  const std::string strategy = "qadam:error_feedback=true,warmup_steps=" + std::to_string(kWarmUp);
  EXPECT_EQ(Replay(strategy, "--optimizer qadam").values, expected.values);
  EXPECT_EQ(Replay(strategy).values, expected.values);  // the default optimizer
  EXPECT_NE(Replay("qadam:error_feedback=true").values, expected.values);
}

TEST_F(ReplayTest, WarmsQAdamUpAsAdam) {
  EXPECT_EQ(Replay("qadam").values, Replay("gradient_allreduce", "--optimizer adam").values);
}

TEST_F(ReplayTest, TakesNoStepsWithALearningRateOfZero) {
  for (const char* strategy : {"bytegrad", "qadam"}) {
    const Array trained = Replay(strategy, "", 0);
    for (std::size_t i = 0; i < trained.values.size(); ++i) ASSERT_EQ(trained.values[i], weights_.values[i % kCount]);
  }
}

TEST_F(ReplayTest, StartsRanksWithWeightsOfTheirOwn) {
  weights_ = {.shape = {kRanks, kCount}, .values = {}};
  for (const float of_rank : {0.0f, 1.0f, 2.0f}) weights_.values.insert(weights_.values.end(), kCount, of_rank);
  gradients_.values.assign(gradients_.values.size(), 0);
  Write();
  const Array trained = Replay("decentralized:communication_interval=2");
  for (const float weight : trained.values) ASSERT_EQ(weight, 1);  // the average of 0, 1 and 2
}

TEST_F(ReplayTest, RefusesWeightsThatDifferWhereReplicasBeginWithThem) {
  weights_ = {.shape = {kRanks, kCount}, .values = std::vector<float>(kRanks * kCount, 1)};
  Write();
  (void)Replay("low_precision_decentralized");
  weights_.values[2 * kCount + 5] = 2;
  Write();
  const CommandRun run = RunTutti("replay low_precision_decentralized" + Files());
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.err, HasSubstr("has different weights for ranks 1 and 2; "));
}

TEST_F(ReplayTest, TrainsNothingAndNoSteps) {
  gradients_ = {.shape = {0, kRanks, kCount}, .values = {}};
  Write();
  EXPECT_EQ(Replay("bytegrad").shape, gradients_.shape);
  gradients_ = {.shape = {2, 1, 0}, .values = {}};
  weights_ = {.shape = {0}, .values = {}};
  Write();
  EXPECT_EQ(Replay("bytegrad").shape, gradients_.shape);
}

TEST_F(ReplayTest, SaysWhatWouldBeRight) {
  const auto expect = [](const std::string& arguments, const std::string& answer) {
    const CommandRun run = RunTutti(arguments);
    EXPECT_NE(run.exit_code, 0) << arguments;
    EXPECT_THAT(run.err, HasSubstr(answer)) << arguments;
  };
  expect("replay" + Files(), "strategy is required");
  expect("replay bytegrad --lr 1", "--gradients, --weights, --out are required");
  expect("replay bytegard" + Files(), "bytegrad");
  expect("replay bytegrad:blok=1" + Files(), "block");
  expect("replay bytegrad" + Files() + "--optimizer lamb", "sgd");
  expect("replay bytegrad" + Files() + "--transport tcp", "inproc");
  expect(
      "replay bytegrad" + Files() + "--optimizer qadam",
      "--optimizer qadam does not go with the strategy bytegrad, which exchanges no momentum; needed is sgd or adam");
  for (const std::string optimizer : {"sgd", "adam"}) {
    expect("replay qadam" + Files() + "--optimizer " + optimizer, "does not go with the strategy qadam");
    expect("replay qadam" + Files() + "--optimizer " + optimizer, "needed is qadam");
  }
  const std::string read = "replay bytegrad --lr 1 --weights " + weights_file_.path();
  expect(read + " --gradients /nowhere/g.npy --out " + out_file_.path(), "cannot read /nowhere/g.npy");
  expect(read + " --gradients " + gradients_file_.path() + " --out /nowhere/w.npy", "cannot write /nowhere/w.npy");
  expect(read + " --gradients / --out " + out_file_.path(), "cannot read /: Is a directory");
  gradients_.shape = {kSteps, kRanks * kCount};
  Write();
  expect("replay bytegrad" + Files(), "has shape (6, 3000); needed are gradients [steps, ranks, n]");
  gradients_ = {.shape = {1, 0, 5}, .values = {}};
  Write();
  expect("replay bytegrad" + Files(), "gradients of 0 ranks");
  gradients_ = {.shape = {1, 1025, 1}, .values = std::vector<float>(1025)};
  Write();
  expect("replay bytegrad" + Files(), "needed are 1…1024, because ranks are threads of this process");
  gradients_ = {.shape = {1, 2, 2}, .values = {1, 2, 3, 4}};
  Write();
  expect("replay bytegrad" + Files(), "has shape (1000,); to ");
  expect("replay bytegrad" + Files(), "belong weights of shape (2,) for all ranks, or (2, 2)");
}

TEST_F(ReplayTest, OverwritesNothingThatItReads) {
  const ScratchFile link("-link.npy");
  std::filesystem::create_symlink(gradients_file_.path(), link.path());
  const std::string before = gradients_file_.Read() + weights_file_.Read();
  const std::pair<std::string, std::string> outs[] = {
      {gradients_file_.path(), "--gradients"}, {weights_file_.path(), "--weights"}, {link.path(), "--gradients"}};
  for (const auto& [out, flag] : outs) {
    const CommandRun run = RunTutti("replay bytegrad --lr 1 --gradients " + gradients_file_.path() + " --weights " +
                                    weights_file_.path() + " --out " + out);
    EXPECT_EQ(run.exit_code, 2);
    EXPECT_THAT(run.err, HasSubstr("--out " + out + " is the file of " + flag + ", which would be overwritten"));
  }
  EXPECT_EQ(gradients_file_.Read() + weights_file_.Read(), before);
}

TEST_F(ReplayTest, RefusesWhatIsNoLearningRate) {
  const std::string rest = "replay bytegrad --gradients " + gradients_file_.path() + " --weights " +
                           weights_file_.path() + " --out " + out_file_.path() + " --lr ";
  for (const char* lr : {"nan", "-nan", "inf", "-inf", "-0.1", "1e39", "1e999", "0.1x", "fast", "''"}) {
    const CommandRun run = RunTutti(rest + lr);
    EXPECT_EQ(run.exit_code, 2) << lr;
    EXPECT_THAT(run.err, HasSubstr("--lr: ")) << lr;
    EXPECT_THAT(run.err, HasSubstr("needed is a number from 0 to ")) << lr;
  }
  EXPECT_FALSE(std::filesystem::exists(out_file_.path()));
}

}  // namespace
}  // namespace tutti::cli
