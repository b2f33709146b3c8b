// Compares the device kernels for messages with the codecs of the CPU: in a team of one thread, which is how they run
// in host memory, and in a team of several.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_replace.h"
#include "tests/codecs/golden/bf16.h"
#include "tests/codecs/golden/fp16.h"
#include "tests/codecs/golden/minmax_uint8.h"
#include "tests/codecs/golden/sign.h"
#include "tests/codecs/golden/topk.h"
#include "tests/codecs/golden/uint4_block.h"
#include "tests/codecs/golden/uint8_block.h"
#include "tests/codecs/message_cases.h"
#include "tests/codecs/messages.h"
#include "tests/codecs/thread_team.h"
#include "tests/harness/sweeps.h"

namespace tutti {
namespace {

class DeviceMessageTest : public testing::TestWithParam<CodecChoice> {};

TEST_P(DeviceMessageTest, OneThreadGivesTheBytesOfTheCodec) {
  VisitMessageCases(GetParam(), /*large=*/!kShortSweeps, [](const DeviceCase& the_case) {
    EXPECT_EQ(kernels::MistakeOnHost(the_case, kernels::HostKernels()), "");
  });
}

TEST_P(DeviceMessageTest, ATeamGivesTheBytesOfTheCodec) {
  const std::int64_t block =
      std::min<std::int64_t>(GetParam().options.block == 0 ? 300 : GetParam().options.block, 300);
  for (const MessageInput& input : {kMessageInputs[4], kMessageInputs[5], kMessageInputs[9]}) {
    EXPECT_EQ(
        kernels::MistakeOnHost(RoundTripCase(GetParam(), input, {0, 1, 9, 2 * block + 5}, true), ThreadTeamKernels()),
        "");
    EXPECT_EQ(kernels::MistakeOnHost(RecodeCase(GetParam(), input, 2 * block + 5, 3, true, true), ThreadTeamKernels()),
              "");
  }
}

std::string CaseName(const testing::TestParamInfo<CodecChoice>& info) {
  return absl::StrReplaceAll(ToString(info.param), {{":", "_"}, {"=", "_"}, {",", "_"}, {".", "_"}});
}

INSTANTIATE_TEST_SUITE_P(All, DeviceMessageTest, testing::ValuesIn(ChoicesOnDevices()), CaseName);

// Encodes and decodes by HostKernels.
std::vector<std::uint8_t> EncodeByKernels(const CodecChoice& choice, const std::vector<float>& values) {
  const auto count = static_cast<std::int64_t>(values.size());
  std::vector<std::uint8_t> message(choice.codec->encoded_bytes(count, choice.options));
  const kernels::EncodeJob job = {
      choice.codec->layout(count, choice.options), values.data(), DType::kF32, message.data(), 0, nullptr};
  EXPECT_TRUE(kernels::HostKernels().encode(nullptr, {&job, 1}).ok());
  return message;
}

std::uint32_t DecodeByKernels(const CodecChoice& choice, const std::vector<std::uint8_t>& message, bool accumulate,
                              std::int64_t count, float* values) {
  const kernels::DecodeJob job = {choice.codec->layout(count, choice.options), message.data(), values, DType::kF32,
                                  accumulate};
  std::uint32_t fault = 0;
  EXPECT_TRUE(kernels::HostKernels().decode(nullptr, {&job, 1}, &fault).ok());
  return fault;
}

template <std::size_t kCases>
void ExpectGolden(absl::string_view name, const GoldenMessage (&cases)[kCases]) {
  for (const GoldenMessage& golden : cases) {
    const CodecChoice choice = {*FindCodec(name), golden.options};
    const std::vector<float> values = MakeValues(golden.input, golden.count);
    const std::vector<std::uint8_t> message = EncodeByKernels(choice, values);
    std::vector<float> decoded(values.size());
    EXPECT_EQ(DecodeByKernels(choice, message, false, golden.count, decoded.data()), 0u);
    EXPECT_EQ(Fingerprint(message.data(), message.size()), golden.encoded)
        << ToString(choice) << " " << Name(golden.input) << " " << golden.count;
    EXPECT_EQ(Fingerprint(decoded.data(), decoded.size() * sizeof(float)), golden.decoded)
        << ToString(choice) << " " << Name(golden.input) << " " << golden.count;
  }
}

TEST(DeviceGoldenMessageTest, KernelsGiveTheGoldenVectors) {
  ExpectGolden("bf16", kBf16Golden);
  ExpectGolden("fp16", kFp16Golden);
  ExpectGolden("minmax_uint8", kMinMaxUint8Golden);
  ExpectGolden("sign", kSignGolden);
  ExpectGolden("topk", kTopKGolden);
  ExpectGolden("uint4_block", kUint4BlockGolden);
  ExpectGolden("uint8_block", kUint8BlockGolden);
}

TEST(DeviceFaultMessageTest, AWrongHeaderIsReportedAndNothingIsWritten) {
  for (const Codec* codec : AllCodecs()) {
    if (codec->linear.has_value() || codec->layout == nullptr) continue;
    const CodecChoice choice = {codec, codec->defaults};
    for (const std::int64_t count : {0, 3, 1500}) {
      const std::vector<std::uint8_t> message = EncodeByKernels(choice, MakeValues(Input::kUniform, count));
      for (std::size_t byte = 0; byte < 24; ++byte) {
        std::vector<std::uint8_t> changed = message;
        changed[byte] ^= 0x10;
        std::vector<float> values(static_cast<std::size_t>(count), 42.0f);
        const std::uint32_t fault = DecodeByKernels(choice, changed, true, count, values.data());
        EXPECT_EQ(kernels::KindOfDecodeFault(fault), kernels::FaultKind::kHeader) << codec->name << " " << byte;
        EXPECT_EQ(values, std::vector<float>(values.size(), 42.0f));
      }
    }
  }
}

TEST(DeviceFaultMessageTest, TheMessageWithTheFaultIsNamed) {
  const CodecChoice choice = {*FindCodec("topk"), {.block = 1024, .density = 0.01}};
  constexpr std::int64_t kCount = 3000;
  std::vector<std::vector<std::uint8_t>> messages(70, EncodeByKernels(choice, MakeValues(Input::kUniform, kCount)));
  // The second index of the second block is made the first once more: 10 values and indices are 60 bytes.
  std::uint8_t* const indices = messages[68].data() + 24 + 60 + 40;
  std::memcpy(indices + 2, indices, 2);
  std::vector<float> values(kCount);
  std::vector<kernels::DecodeJob> jobs;
  std::vector<const std::uint8_t*> versions;
  for (const auto& message : messages) {
    jobs.push_back({choice.codec->layout(kCount, choice.options), message.data(), values.data(), DType::kF32, true});
    versions.push_back(message.data());
  }
  std::uint32_t fault = 0;
  ASSERT_TRUE(kernels::HostKernels().decode(nullptr, jobs, &fault).ok());
  EXPECT_EQ(kernels::KindOfDecodeFault(fault), kernels::FaultKind::kCode);
  EXPECT_EQ(kernels::MessageOfDecodeFault(fault), 68);
  const absl::Status status = kernels::StatusOfDecodeFault(fault);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(status.message().find("message 68"), absl::string_view::npos) << status;
  EXPECT_TRUE(kernels::StatusOfDecodeFault(0).ok());

  std::vector<std::uint8_t> message(messages[0].size());
  fault = 0;
  const kernels::EncodeJob encode = {
      choice.codec->layout(kCount, choice.options), nullptr, DType::kF32, message.data(), 0, nullptr};
  ASSERT_TRUE(kernels::HostKernels().recode(nullptr, encode, values.data(), versions, 1, &fault).ok());
  EXPECT_EQ(kernels::KindOfDecodeFault(fault), kernels::FaultKind::kCode);
  EXPECT_EQ(kernels::MessageOfDecodeFault(fault), 68);
}

TEST(DeviceFaultMessageTest, DamagedMessagesDoNoHarm) {
  SplitMix random(5);
  for (const CodecChoice& choice : ChoicesOnDevices()) {
    for (const std::int64_t count : {1, 15, 1500}) {
      const std::vector<std::uint8_t> message = EncodeByKernels(choice, MakeValues(Input::kManyScales, count));
      const std::size_t header = choice.codec->linear.has_value() ? 0 : 24;
      for (int round = 0; round < 10; ++round) {
        std::vector<std::uint8_t> damaged = message;
        for (std::size_t at = header; at < damaged.size(); ++at) damaged[at] = static_cast<std::uint8_t>(random.Next());
        constexpr std::int64_t kBehind = 2000;
        std::vector<float> memory(static_cast<std::size_t>(count + kBehind), 42.0f);
        DecodeByKernels(choice, damaged, round % 2 == 0, count, memory.data());
        EXPECT_EQ(std::count(memory.begin() + count, memory.end(), 42.0f), kBehind) << ToString(choice);
      }
    }
  }
}

TEST(DeviceFaultMessageTest, TheMiddleRefusesNoVersionsAndTooMany) {
  const CodecChoice choice = {*FindCodec("uint8_block"), {.block = 1024}};
  std::vector<float> sum(8);
  std::vector<std::uint8_t> message(choice.codec->encoded_bytes(8, choice.options));
  const kernels::EncodeJob encode = {
      choice.codec->layout(8, choice.options), nullptr, DType::kF32, message.data(), 0, nullptr};
  for (const std::size_t versions : {0, kernels::kMaxOperands + 1}) {
    const std::vector<const std::uint8_t*> list(versions, message.data());
    const absl::Status status = kernels::HostKernels().recode(nullptr, encode, sum.data(), list, 1, nullptr);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  }
}

}  // namespace
}  // namespace tutti
