// gradient_allreduce, trained for 50 steps, against a loop over all ranks.
#include "tests/algorithms/references/comparison.h"
#include "tests/algorithms/references/gradient_allreduce.h"

namespace tutti {
namespace {

MakeReference AllReduce(bool average = true) {
  return [average](const Floats&) { return std::make_unique<GradientAllReduceReference>(average); };
}

class GradientAllReduceTraining : public ::testing::TestWithParam<int> {};

// Mapped memory is summed in rank order, whatever the bucket.
TEST_P(GradientAllReduceTraining, EqualsItsReferenceToTheBit) {
  ExpectTrainsAs(RandomTraining("gradient_allreduce", GetParam(), kSteps), AllReduce());
  ExpectTrainsAs(RandomTraining("gradient_allreduce:average=false", GetParam(), kSteps), AllReduce(false));
}

TEST_P(GradientAllReduceTraining, OverMessagesOnlyTheOrderOfSumsDiffers) {
  for (const char* schedule : {"auto", "ring", "recursive_doubling", "halving_doubling"}) {
    Training training = RandomTraining(std::string("gradient_allreduce:schedule=") + schedule, GetParam(), kSteps);
    training.world = Messages();
    ExpectTrainsAs(training, AllReduce(), kOrderOfSums);
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, GradientAllReduceTraining, ::testing::ValuesIn(kWorldSizes));

TEST(GradientAllReduceTrainingOverEveryTransport, EqualsItsReference) {
  for (const std::string& transport : WorldTransports()) {
    Training training = RandomTraining("gradient_allreduce", 3, kSteps);
    training.world.transport = transport;
    ExpectTrainsAs(training, AllReduce());
  }
}

}  // namespace
}  // namespace tutti
