// low_precision_decentralized, trained for up to 50 steps, against a loop over all ranks.
#include "absl/strings/str_cat.h"
#include "tests/algorithms/references/comparison.h"
#include "tests/algorithms/references/low_precision_decentralized.h"

namespace tutti {
namespace {

constexpr std::int64_t kOneSegment = 1 << 20;

MakeReference LowPrecision(int size, const CodecChoice& codec, std::int64_t segment_bytes, int interval) {
  return [=](const Floats& initial) {
    return std::make_unique<LowPrecisionDecentralizedReference>(
        size, initial, codec, static_cast<std::size_t>(segment_bytes) / sizeof(float), interval);
  };
}

class LowPrecisionDecentralizedTraining : public ::testing::TestWithParam<int> {};

TEST_P(LowPrecisionDecentralizedTraining, EqualsItsReferenceToTheBit) {
  const int size = GetParam();
  for (const int interval : {1, 3}) {
    const std::string strategy = absl::StrCat("low_precision_decentralized:communication_interval=", interval);
    ExpectTrainsAs(RandomTraining(strategy, size, kSteps), LowPrecision(size, Codec8Bit(), kOneSegment, interval));
    ExpectTrainsAs(RandomTraining(strategy + ",block=64", size, kSteps),
                   LowPrecision(size, Codec8Bit(64), kOneSegment, interval));
  }
  ExpectTrainsAs(RandomTraining("low_precision_decentralized:codec=minmax_uint8,block=0", size, kSteps),
                 LowPrecision(size, CodecOfBlocks("minmax_uint8", 0), kOneSegment, 1));
}

// A bucket of several segments is sent as one message per segment.
TEST_P(LowPrecisionDecentralizedTraining, EqualsItsReferenceInSegments) {
  for (WorldOptions world : {WorldOptions(), Messages()}) {
    world.communicator.segment_bytes = 1000;
    Training training = RandomTraining("low_precision_decentralized:block=0", GetParam(), kSteps);
    training.world = world;
    ExpectTrainsAs(training, LowPrecision(GetParam(), Codec8Bit(0), 1000, 1));
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, LowPrecisionDecentralizedTraining, ::testing::ValuesIn(WorldSizes()));

TEST(LowPrecisionDecentralizedTrainingOverEveryTransport, EqualsItsReference) {
  for (const std::string& transport : WorldTransports()) {
    Training training = RandomTraining("low_precision_decentralized", 3, kSteps);
    training.world.transport = transport;
    ExpectTrainsAs(training, LowPrecision(3, Codec8Bit(), kOneSegment, 1));
  }
}

}  // namespace
}  // namespace tutti
