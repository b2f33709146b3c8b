// low_precision_decentralized, trained for up to 50 steps, against a loop over all ranks.
#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/algorithms/references/comparison.h"
#include "tests/algorithms/references/low_precision_decentralized.h"
#include "tutti/algorithm.h"

namespace tutti {
namespace {

MakeReference LowPrecision(int size, const CodecChoice& codec, int interval) {
  return [=](const Floats& initial) {
    return std::make_unique<LowPrecisionDecentralizedReference>(size, initial, codec, interval);
  };
}

class LowPrecisionDecentralizedTraining : public ::testing::TestWithParam<int> {};

TEST_P(LowPrecisionDecentralizedTraining, EqualsItsReferenceToTheBit) {
  const int size = GetParam();
  for (const int interval : {1, 3}) {
    const std::string strategy = absl::StrCat("low_precision_decentralized:communication_interval=", interval);
    ExpectTrainsAs(RandomTraining(strategy, size, kSteps), LowPrecision(size, Codec8Bit(), interval));
    ExpectTrainsAs(RandomTraining(strategy + ",block=64", size, kSteps), LowPrecision(size, Codec8Bit(64), interval));
  }
  ExpectTrainsAs(RandomTraining("low_precision_decentralized:codec=minmax_uint8,block=0", size, kSteps),
                 LowPrecision(size, CodecOfBlocks("minmax_uint8", 0), 1));
}

// Whatever the length of segments, elements are encoded as in one message for the whole bucket.
TEST_P(LowPrecisionDecentralizedTraining, EqualsItsReferenceInSegments) {
  for (WorldOptions world : {WorldOptions(), Messages()}) {
    world.communicator.segment_bytes = 1000;
    for (const int block : {0, 64, 512}) {
      Training training = RandomTraining(absl::StrCat("low_precision_decentralized:block=", block), GetParam(), kSteps);
      training.world = world;
      ExpectTrainsAs(training, LowPrecision(GetParam(), Codec8Bit(block), 1));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, LowPrecisionDecentralizedTraining, ::testing::ValuesIn(WorldSizes()));

TEST(LowPrecisionDecentralizedTrainingOverEveryTransport, EqualsItsReference) {
  for (const std::string& transport : WorldTransports()) {
    Training training = RandomTraining("low_precision_decentralized", 3, kSteps);
    training.world.transport = transport;
    ExpectTrainsAs(training, LowPrecision(3, Codec8Bit(), 1));
  }
}

// The elements of each message of a bucket of 200,000.
std::vector<std::int64_t> MessagesOf(const std::string& options, std::int64_t segment_bytes) {
  const Strategy strategy = *ParseStrategy("low_precision_decentralized" + options);
  const Plan plan = *BuildPlan(strategy, DType::kF32, 200'000, 0, 3, {.segment_bytes = segment_bytes});
  std::vector<std::int64_t> elements;
  for (const Step& step : plan.steps) {
    if (step.kind == StepKind::kEncode) elements.push_back(plan.srcs(step)[0].count());
  }
  return elements;
}

TEST(LowPrecisionDecentralizedMessages, AreCutBetweenBlocks) {
  using ::testing::ElementsAre;
  EXPECT_THAT(MessagesOf("", 256 << 10), ElementsAre(64 << 10, 64 << 10, 200'000 - (128 << 10)));
  EXPECT_THAT(MessagesOf("", 300'000), ElementsAre(74 * 1024, 200'000 - 74 * 1024));
  EXPECT_THAT(MessagesOf(":block=131072", 256 << 10), ElementsAre(200'000));
  EXPECT_THAT(MessagesOf(":block=65536", 100'000), ElementsAre(64 << 10, 64 << 10, 200'000 - (128 << 10)));
  EXPECT_THAT(MessagesOf(":codec=minmax_uint8,block=0", 256 << 10), ElementsAre(200'000));
  EXPECT_THAT(MessagesOf(":rounding=stochastic", 256 << 10), ElementsAre(200'000));
}

}  // namespace
}  // namespace tutti
