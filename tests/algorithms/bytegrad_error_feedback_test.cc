// What error feedback is for: descent of a quadratic fails with a coarse codec, and succeeds with error feedback.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/harness/training.h"

namespace tutti {
namespace {

constexpr int kElements = 1000;

Training OneBucket(const std::string& strategy, float lr) {
  Training training;
  training.model = {.counts = {kElements}, .bucket_bytes = 1 << 20, .first_bucket_bytes = 1 << 20, .buckets = {{0}}};
  training.strategy = strategy;
  training.lr = lr;
  training.initial = Floats(kElements, 0);
  training.gradients = History(1, Ranks(2));
  return training;
}

// Two ranks descend ½|x - target|² together. Each adds a slope of its own to element 0 of the gradient. The slopes
// cancel out in the average, but make the levels of 8 bits so wide that all other elements are nearest to level 0.
// Returns the root mean square of x - target in the other elements, at the start and at the end.
std::pair<double, double> DistanceToTarget(const std::string& strategy, int steps) {
  constexpr float kSlope = 2000;
  Training training = OneBucket(strategy, 0.01f);
  const Floats target = RandomNumbers(kElements, 5);
  const auto distance = [&](const Floats& x) {
    double squares = 0;
    for (int i = 1; i < kElements; ++i) squares += std::pow(x[i] - target[i], 2);
    return std::sqrt(squares / (kElements - 1));
  };
  double last = 0;
  RunReplicas(training, [&](Communicator& world, Replica& replica) {
    for (int step = 0; step < steps; ++step) {
      Floats gradient(kElements);
      for (int i = 0; i < kElements; ++i) gradient[i] = replica.weights()[i] - target[i];
      gradient[0] += world.rank() == 0 ? kSlope : -kSlope;
      ASSERT_TRUE(replica.Step(gradient, training.lr).ok());
    }
    if (world.rank() == 0) last = distance(replica.weights());
  });
  return {distance(training.initial), last};
}

TEST(CoarseCodec, GetsNowhereWithoutErrorFeedback) {
  // block=0 gives a chunk one range: the half of the elements that share a chunk with the slope never move.
  const auto [first, last] = DistanceToTarget("bytegrad:block=0", 1000);
  EXPECT_GE(last, 0.5 * first);
}

TEST(CoarseCodec, ArrivesWithErrorFeedback) {
  const auto [first, last] = DistanceToTarget("bytegrad:block=0,error_feedback=true", 1000);
  EXPECT_LE(last, 0.1 * first);
}

TEST(CoarseCodec, TheExactAverageArrives) {
  const auto [first, last] = DistanceToTarget("gradient_allreduce", 1000);
  EXPECT_LE(last, 0.01 * first);
}

// Adds a slope that averages to zero over any four steps, while its sign does not: three times down, once steeply up.
// Returns the root mean square of x - target, at the start and at the end.
std::pair<double, double> DistanceUnderRareSlopes(const std::string& strategy) {
  constexpr float kSlope = 20;
  Training training = OneBucket(strategy, 0.002f);
  const Floats target = RandomNumbers(kElements, 5);
  const auto distance = [&](const Floats& x) {
    double squares = 0;
    for (int i = 0; i < kElements; ++i) squares += std::pow(x[i] - target[i], 2);
    return std::sqrt(squares / kElements);
  };
  double last = 0;
  RunReplicas(training, [&](Communicator& world, Replica& replica) {
    for (int step = 0; step < 3000; ++step) {
      Floats gradient(kElements);
      for (int i = 0; i < kElements; ++i) {
        gradient[i] = replica.weights()[i] - target[i] + (i % 4 == step % 4 ? 3 * kSlope : -kSlope);
      }
      ASSERT_TRUE(replica.Step(gradient, training.lr).ok());
    }
    if (world.rank() == 0) last = distance(replica.weights());
  });
  return {distance(training.initial), last};
}

TEST(OneBit, DivergesWithoutErrorFeedback) {
  const auto [first, last] = DistanceUnderRareSlopes("bytegrad:codec=sign");
  EXPECT_GE(last, 5 * first);
}

TEST(OneBit, ArrivesWithErrorFeedback) {
  const auto [first, last] = DistanceUnderRareSlopes("bytegrad:codec=sign,error_feedback=true");
  EXPECT_LE(last, 0.5 * first);
}

TEST(OneBit, TheExactAverageArrives) {
  const auto [first, last] = DistanceUnderRareSlopes("gradient_allreduce");
  EXPECT_LE(last, 0.2 * first);
}

}  // namespace
}  // namespace tutti
