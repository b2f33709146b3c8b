// bytegrad, trained for up to 50 steps, against a loop over all ranks.
#include "absl/strings/str_cat.h"
#include "tests/algorithms/references/bytegrad.h"
#include "tests/algorithms/references/comparison.h"

namespace tutti {
namespace {

MakeReference ByteGrad(int size, const CodecChoice& codec, bool error_feedback) {
  return [=](const Floats& initial) {
    return std::make_unique<ByteGradReference>(size, /*divisor=*/size, initial.size(), codec, error_feedback);
  };
}

class ByteGradTraining : public ::testing::TestWithParam<int> {};

TEST_P(ByteGradTraining, EqualsItsReferenceToTheBit) {
  for (const bool error_feedback : {false, true}) {
    const char* const suffix = error_feedback ? ",error_feedback=true" : "";
    for (const int block : {64, 1024}) {
      ExpectTrainsAs(RandomTraining(absl::StrCat("bytegrad:block=", block, suffix), GetParam(), kSteps),
                     ByteGrad(GetParam(), Codec8Bit(block), error_feedback));
    }
    ExpectTrainsAs(RandomTraining(absl::StrCat("bytegrad:codec=minmax_uint8,block=0", suffix), GetParam(), kSteps),
                   ByteGrad(GetParam(), CodecOfBlocks("minmax_uint8", 0), error_feedback));
  }
}

TEST_P(ByteGradTraining, EqualsItsReferenceWithEveryCodecThatNeedsErrorFeedback) {
  for (const auto& [name, block] : {std::pair("sign", 256), std::pair("topk", 64), std::pair("uint4_block", 128)}) {
    ExpectTrainsAs(RandomTraining(absl::StrCat("bytegrad:codec=", name, ",block=", block, ",error_feedback=true"),
                                  GetParam(), kSteps),
                   ByteGrad(GetParam(), CodecOfBlocks(name, block), true));
  }
}

TEST_P(ByteGradTraining, EqualsItsReferenceWithRotatedBlocks) {
  CodecChoice codec = CodecOfBlocks("uint4_block", 128);
  codec.options.rotation = true;
  codec.options.seed = 7;
  for (const bool error_feedback : {false, true}) {
    ExpectTrainsAs(RandomTraining(absl::StrCat("bytegrad:codec=uint4_block,rotation=true,seed=7",
                                               error_feedback ? ",error_feedback=true" : ""),
                                  GetParam(), kSteps),
                   ByteGrad(GetParam(), codec, error_feedback));
  }
}

// Over messages, too, chunks are summed in rank order, except in buckets that are too small to be encoded.
TEST_P(ByteGradTraining, EqualsItsReferenceOverMessages) {
  Training training = RandomTraining("bytegrad:error_feedback=true", GetParam(), kSteps);
  training.world = Messages();
  ExpectTrainsAs(training, ByteGrad(GetParam(), Codec8Bit(), true), kOrderOfSums);
}

INSTANTIATE_TEST_SUITE_P(Worlds, ByteGradTraining, ::testing::ValuesIn(WorldSizes()));

TEST(ByteGradTrainingOverEveryTransport, EqualsItsReference) {
  for (const std::string& transport : WorldTransports()) {
    Training training = RandomTraining("bytegrad:error_feedback=true", 4, kSteps);
    training.world.transport = transport;
    ExpectTrainsAs(training, ByteGrad(4, Codec8Bit(), true));
  }
}

}  // namespace
}  // namespace tutti
