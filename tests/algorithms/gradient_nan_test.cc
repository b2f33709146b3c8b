// A NaN or infinity in the gradient of any rank reaches every rank in that step, and no later step.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <string>

#include "tests/harness/sweeps.h"
#include "tests/harness/training.h"

namespace tutti {
namespace {

constexpr int kSize = 4;
constexpr int kSteps = 5;
constexpr int kBadStep = 2;

// Trains with one bad element in the gradient of one rank, in one step. `stays`: every later step must show the
// element, too.
void TrainWithOneBadElement(const std::string& strategy, int culprit, std::int64_t element, float bad, bool stays) {
  Training training = RandomTraining(strategy, kSize, kSteps);
  training.gradients[kBadStep][culprit][element] = bad;
  RunReplicas(training, [&](Communicator& world, Replica& replica) {
    for (int step = 0; step < kSteps; ++step) {
      const absl::Status status = replica.Step(training.gradients[step][world.rank()], training.lr);
      ASSERT_TRUE(status.ok()) << status;
      const Floats& seen = replica.synchronized_gradient();
      if (step == kBadStep || (stays && step > kBadStep)) {
        EXPECT_FALSE(std::isfinite(seen[element])) << "rank " << world.rank() << " does not see it, step " << step;
      } else {
        const auto finite = [](float value) { return std::isfinite(value); };
        EXPECT_TRUE(std::all_of(seen.begin(), seen.end(), finite)) << "rank " << world.rank() << ", step " << step;
      }
    }
  });
}

void TrainWithEveryCulprit(const std::string& strategy, bool stays) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  const Model model = SevenParameters();
  for (int culprit = 0; culprit < Repetitions(kSize); ++culprit) {
    // The bad elements lie in every bucket, also in the bucket that is not encoded, and in the first and last chunk.
    for (const std::int64_t element : {std::int64_t{0}, model.first(3) + 600, model.first(4) + 1, model.count() - 1}) {
      TrainWithOneBadElement(strategy, culprit, element, nan, stays);
    }
    TrainWithOneBadElement(strategy, culprit, model.first(6), infinity, stays);
  }
}

class NotANumber : public ::testing::TestWithParam<const char*> {};

TEST_P(NotANumber, IsSeenByAllAndDoesNotStay) { TrainWithEveryCulprit(GetParam(), /*stays=*/false); }

INSTANTIATE_TEST_SUITE_P(Strategies, NotANumber,
                         ::testing::Values("gradient_allreduce", "gradient_allreduce:average=false", "bytegrad",
                                           "gradient_allreduce:codec=bf16", "gradient_allreduce:codec=fp16",
                                           "bytegrad:codec=minmax_uint8,block=0", "bytegrad:error_feedback=true",
                                           "bytegrad:codec=uint4_block",
                                           "bytegrad:codec=uint4_block,rotation=true,error_feedback=true",
                                           "bytegrad:codec=sign,error_feedback=true",
                                           "bytegrad:codec=topk,error_feedback=true", "qadam:warmup_steps=100"));

// A NaN stays in the momentum of Adam, which is made of all gradients so far.
TEST(NotANumberInMomentum, IsSeenByAllAndStays) { TrainWithEveryCulprit("qadam:warmup_steps=1", /*stays=*/true); }

}  // namespace
}  // namespace tutti
