// What every codec must do; a codec's own test holds only what is special about it.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "tests/codecs/inputs.h"
#include "tutti/codec.h"

namespace tutti {
namespace {

constexpr std::int64_t kCounts[] = {0, 1, 2, 9, 10, 11, 12, 31, 1000, 1023, 1024, 1025, 2053, 10007};

class CodecConformanceTest : public testing::TestWithParam<std::tuple<const Codec*, std::int64_t>> {
 protected:
  const Codec& codec() const { return *std::get<0>(GetParam()); }
  CodecOptions options() const { return {.block = std::get<1>(GetParam())}; }

  std::vector<std::uint8_t> Encode(const std::vector<float>& values) const {
    std::vector<std::uint8_t> message(codec().encoded_bytes(static_cast<std::int64_t>(values.size()), options()));
    codec().encode(values, options(), absl::MakeSpan(message));
    return message;
  }
  absl::Status Decode(const std::vector<std::uint8_t>& message, std::vector<float>& values,
                      bool accumulate = false) const {
    return codec().decode(message, options(), accumulate, absl::MakeSpan(values));
  }
  std::vector<float> RoundTrip(const std::vector<float>& values) const {
    std::vector<float> decoded(values.size(), -1.0f);
    const absl::Status status = Decode(Encode(values), decoded);
    EXPECT_TRUE(status.ok()) << status;
    return decoded;
  }
  // An error that names the codec, and a destination as it was.
  void ExpectRefused(const std::vector<std::uint8_t>& message, std::int64_t count) const {
    std::vector<float> values(static_cast<std::size_t>(count), 42.0f);
    const absl::Status status = Decode(message, values);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_NE(status.message().find(codec().name), absl::string_view::npos) << status;
    EXPECT_EQ(values, std::vector<float>(static_cast<std::size_t>(count), 42.0f));
  }
};

TEST_P(CodecConformanceTest, OptionsAreValidAndTheNameFindsTheCodec) {
  EXPECT_TRUE(codec().validate(options()).ok());
  ASSERT_TRUE(FindCodec(codec().name).ok());
  EXPECT_EQ(*FindCodec(codec().name), &codec());
  EXPECT_FALSE(codec().summary.empty() || codec().error_bound.empty());
}

TEST_P(CodecConformanceTest, EncodingTwiceGivesTheSameBytesInMessagesOfAnyAlignment) {
  for (std::int64_t count : kCounts) {
    const std::vector<float> values = MakeValues(Input::kBellShaped, count);
    const std::vector<std::uint8_t> message = Encode(values);
    std::vector<std::uint8_t> shifted(message.size() + 1, 0xEE);
    codec().encode(values, options(), absl::MakeSpan(shifted).subspan(1));
    EXPECT_EQ(std::vector<std::uint8_t>(shifted.begin() + 1, shifted.end()), message) << count;
    std::vector<float> decoded(values.size());
    ASSERT_TRUE(codec().decode(absl::MakeSpan(shifted).subspan(1), options(), false, absl::MakeSpan(decoded)).ok());
    EXPECT_EQ(decoded, RoundTrip(values)) << count;
  }
}

TEST_P(CodecConformanceTest, LargeMessagesShrinkAndNoMessageGrowsByMoreThanItsHeader) {
  for (std::int64_t count : kCounts) EXPECT_LE(codec().encoded_bytes(count, options()), 4 * count + 24) << count;
  EXPECT_LE(codec().encoded_bytes(1 << 20, {}), (4 << 20) * 0.253);
}

TEST_P(CodecConformanceTest, AccumulateAddsTheDecodedValue) {
  for (std::int64_t count : kCounts) {
    const std::vector<float> values = MakeValues(Input::kUniform, count);
    const std::vector<float> decoded = RoundTrip(values);
    std::vector<float> sum(values.size(), 0.1f);
    ASSERT_TRUE(Decode(Encode(values), sum, /*accumulate=*/true).ok());
    for (std::int64_t i = 0; i < count; ++i) ASSERT_EQ(sum[i], 0.1f + decoded[i]) << i;
  }
}

TEST_P(CodecConformanceTest, ZeroStaysZero) {
  for (Input input : {Input::kZeros, Input::kSparse, Input::kLargest}) {
    if (input == Input::kLargest && codec().name == "minmax_uint8") continue;  // its range overflows
    const std::vector<float> values = MakeValues(input, 3000);
    const std::vector<float> decoded = RoundTrip(values);
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_TRUE(values[i] != 0 || decoded[i] == 0.0f) << Name(input) << i;
    }
  }
}

TEST_P(CodecConformanceTest, NonFiniteValuesPoisonTheirBlockAndNoOther) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr std::int64_t kCount = 4 * 1024 + 100;
  const std::vector<float> clean = RoundTrip(MakeValues(Input::kUniform, kCount));
  for (float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::signaling_NaN(), kInfinity, -kInfinity}) {
    for (std::int64_t position : {0, 1, 1023, 1024, 2500, 4096, 4195}) {
      std::vector<float> values = MakeValues(Input::kUniform, kCount);
      values[position] = bad;
      const std::vector<float> decoded = RoundTrip(values);
      const std::int64_t block = options().block == 0 ? kCount : options().block;
      for (std::int64_t i = 0; i < kCount; ++i) {
        if (i / block == position / block) {
          ASSERT_TRUE(std::isnan(decoded[i])) << i;
        } else {
          ASSERT_EQ(decoded[i], clean[i]) << i;
        }
      }
    }
  }
}

TEST_P(CodecConformanceTest, EveryChangedHeaderByteIsRefused) {
  for (std::int64_t count : {0, 3, 1500}) {
    const std::vector<std::uint8_t> message = Encode(MakeValues(Input::kUniform, count));
    for (std::size_t byte = 0; byte < 24; ++byte) {
      for (int bit = 0; bit < 8; ++bit) {
        std::vector<std::uint8_t> changed = message;
        changed[byte] = static_cast<std::uint8_t>(changed[byte] ^ (1 << bit));
        ExpectRefused(changed, count);
      }
    }
  }
}

TEST_P(CodecConformanceTest, WrongLengthsAreRefused) {
  for (std::int64_t count : {0, 3, 1500}) {
    std::vector<std::uint8_t> message = Encode(MakeValues(Input::kUniform, count));
    message.push_back(0);
    ExpectRefused(message, count);
    for (std::size_t length = message.size() - 1; length > 0; length /= 2) {
      message.resize(length - 1);
      ExpectRefused(message, count);
    }
  }
}

TEST_P(CodecConformanceTest, MessagesForOtherCountsAndOptionsAreRefused) {
  const std::vector<std::uint8_t> message = Encode(MakeValues(Input::kUniform, 1500));
  ExpectRefused(message, 1499);
  ExpectRefused(message, 0);
  const CodecOptions other = {.block = options().block == 64 ? 128 : 64};
  std::vector<float> values(1500);
  EXPECT_EQ(codec().decode(message, other, false, absl::MakeSpan(values)).code(), absl::StatusCode::kDataLoss);
}

TEST_P(CodecConformanceTest, DamagedPayloadsNeverCrash) {
  SplitMix random(5);
  const std::vector<std::uint8_t> message = Encode(MakeValues(Input::kManyScales, 1500));
  for (int round = 0; round < 300; ++round) {
    std::vector<std::uint8_t> damaged = message;
    const std::uint64_t changes = 1 + random.Next() % 20;
    for (std::uint64_t k = 0; k < changes; ++k) {
      damaged[24 + random.Next() % (damaged.size() - 24)] = static_cast<std::uint8_t>(random.Next());
    }
    std::vector<float> values(1500);
    EXPECT_TRUE(Decode(damaged, values, round % 2 == 0).ok());
  }
}

TEST_P(CodecConformanceTest, OptionsThatMakeNoSenseAreRefused) {
  for (std::int64_t block : {-1, 1, 2, 3, 1000, -1024}) {
    const absl::Status status = codec().validate({.block = block});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << block;
    EXPECT_NE(status.message().find("block"), absl::string_view::npos) << status;
  }
}

std::string CaseName(const testing::TestParamInfo<std::tuple<const Codec*, std::int64_t>>& info) {
  const absl::string_view name = std::get<0>(info.param)->name;
  return std::string(name.data(), name.size()) + "_block" + std::to_string(std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(All, CodecConformanceTest,
                         testing::Combine(testing::ValuesIn(AllCodecs().begin(), AllCodecs().end()),
                                          testing::ValuesIn<std::int64_t>({0, 16, 1024})),
                         CaseName);

TEST(FindCodecTest, UnknownNamesListTheValidOnes) {
  const absl::Status status = FindCodec("uint9").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(status.message().find("minmax_uint8, uint8_block"), absl::string_view::npos) << status;
}

}  // namespace
}  // namespace tutti
