// gradient_allreduce, trained for up to 50 steps, against a loop over all ranks.
#include "absl/strings/str_cat.h"
#include "tests/algorithms/references/bytegrad.h"
#include "tests/algorithms/references/comparison.h"
#include "tests/algorithms/references/gradient_allreduce.h"

namespace tutti {
namespace {

MakeReference AllReduce(int divisor) {
  return [divisor](const Floats&) { return std::make_unique<GradientAllReduceReference>(divisor); };
}

class GradientAllReduceTraining : public ::testing::TestWithParam<int> {};

// In mapped memory every bucket is summed in rank order, as by the reference.
TEST_P(GradientAllReduceTraining, EqualsItsReferenceToTheBit) {
  ExpectTrainsAs(RandomTraining("gradient_allreduce", GetParam(), kSteps), AllReduce(GetParam()));
  ExpectTrainsAs(RandomTraining("gradient_allreduce:average=false", GetParam(), kSteps), AllReduce(1));
}

TEST_P(GradientAllReduceTraining, OverMessagesOnlyTheOrderOfSumsDiffers) {
  for (const char* schedule : {"auto", "ring", "recursive_doubling", "halving_doubling"}) {
    Training training = RandomTraining(std::string("gradient_allreduce:schedule=") + schedule, GetParam(), kSteps);
    training.world = Messages();
    ExpectTrainsAs(training, AllReduce(GetParam()), kOrderOfSums);
  }
}

// Elements that are cast travel chunk by chunk as with bytegrad, so that they are summed in rank order over messages,
// too.
TEST_P(GradientAllReduceTraining, WithACodecEqualsItsReferenceToTheBit) {
  const int size = GetParam();
  for (const char* codec : {"bf16", "fp16"}) {
    for (const bool average : {true, false}) {
      Training training = RandomTraining(
          absl::StrCat("gradient_allreduce:codec=", codec, ",average=", average ? "true" : "false"), size, kSteps);
      const MakeReference reference = [=](const Floats& initial) {
        return std::make_unique<ByteGradReference>(size, average ? size : 1, initial.size(), CodecOfDefaults(codec),
                                                   /*error_feedback=*/false);
      };
      ExpectTrainsAs(training, reference);
      training.world = Messages();
      ExpectTrainsAs(training, reference);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, GradientAllReduceTraining, ::testing::ValuesIn(WorldSizes()));

TEST(GradientAllReduceTrainingOverEveryTransport, EqualsItsReference) {
  for (const std::string& transport : WorldTransports()) {
    Training training = RandomTraining("gradient_allreduce", 3, kSteps);
    training.world.transport = transport;
    ExpectTrainsAs(training, AllReduce(3));
  }
}

}  // namespace
}  // namespace tutti
