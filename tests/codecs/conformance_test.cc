// What every codec must do; a codec's own test tests only what is special about the codec.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "tests/codecs/inputs.h"
#include "tests/codecs/messages.h"
#include "tests/harness/sweeps.h"
#include "tutti/codec.h"

namespace tutti {
namespace {

constexpr std::int64_t kCounts[] = {0, 1, 2, 9, 10, 11, 12, 31, 1000, 1023, 1024, 1025, 2053, 10007};

// Every codec with every combination of these options that it accepts, and with its defaults.
std::vector<CodecChoice> EveryChoice() {
  std::vector<CodecChoice> choices;
  for (const Codec* codec : AllCodecs()) {
    choices.push_back({codec, codec->defaults});
    for (const std::int64_t block : {0, 16, 1024}) {
      for (const Rounding rounding : {Rounding::kNearest, Rounding::kStochastic}) {
        for (const bool rotation : {false, true}) {
          for (const double density : {1.0, 0.02, 0.3}) {
            const CodecOptions options{
                .block = block, .rounding = rounding, .seed = 0, .rotation = rotation, .density = density};
            if (options != codec->defaults && codec->validate(options).ok()) choices.push_back({codec, options});
          }
        }
      }
    }
  }
  return choices;
}

class CodecConformanceTest : public testing::TestWithParam<CodecChoice> {
 protected:
  const Codec& codec() const { return *GetParam().codec; }
  const CodecOptions& options() const { return GetParam().options; }
  bool has_header() const { return !codec().linear.has_value(); }
  bool keeps_every_zero() const { return codec().keeps_zeros && !options().rotation; }
  std::int64_t BlockOf(std::int64_t count) const {
    if (codec().linear.has_value()) return 1;
    return options().block == 0 ? count : options().block;
  }

  std::vector<std::uint8_t> Encode(const std::vector<float>& values, std::uint64_t draw = 0) const {
    return EncodeMessage(codec(), options(), values, draw);
  }
  absl::Status Decode(const std::vector<std::uint8_t>& message, std::vector<float>& values,
                      bool accumulate = false) const {
    return codec().decode(message, options(), accumulate, absl::MakeSpan(values));
  }
  std::vector<float> RoundTrip(const std::vector<float>& values) const {
    return tutti::RoundTrip(codec(), options(), values);
  }
  // Expects that `message` is refused with an error that names the codec, and that the destination stays as it was.
  void ExpectRefused(const std::vector<std::uint8_t>& message, std::int64_t count) const {
    std::vector<float> values(static_cast<std::size_t>(count), 42.0f);
    const absl::Status status = Decode(message, values);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_NE(status.message().find(codec().name), absl::string_view::npos) << status;
    EXPECT_EQ(kernels::Differences(values, std::vector<float>(values.size(), 42.0f)), "");
  }
  // Expects that decoding `message`, whether it is refused or not, writes nothing behind the destination.
  void ExpectNoHarm(const std::vector<std::uint8_t>& message, std::int64_t count, bool accumulate) const {
    constexpr std::int64_t kBehind = 2000;
    std::vector<float> memory(static_cast<std::size_t>(count + kBehind), 42.0f);
    const absl::Span<float> values = absl::MakeSpan(memory).first(static_cast<std::size_t>(count));
    const absl::Status status = codec().decode(message, options(), accumulate, values);
    if (!status.ok()) {
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    }
    EXPECT_EQ(std::count(memory.begin() + count, memory.end(), 42.0f), kBehind);
  }
};

TEST_P(CodecConformanceTest, OptionsAreValidAndTheNameFindsTheCodec) {
  EXPECT_TRUE(codec().validate(codec().defaults).ok()) << codec().validate(codec().defaults);
  ASSERT_TRUE(FindCodec(codec().name).ok());
  EXPECT_EQ(*FindCodec(codec().name), &codec());
  EXPECT_FALSE(codec().summary.empty() || codec().error_bound.empty());
}

TEST_P(CodecConformanceTest, EncodingTwiceGivesTheSameBytesInMessagesOfAnyAlignment) {
  for (std::int64_t count : kCounts) {
    const std::vector<float> values = MakeValues(Input::kBellShaped, count);
    const std::vector<std::uint8_t> message = Encode(values);
    std::vector<std::uint8_t> shifted(message.size() + 1, 0xEE);
    codec().encode(values, options(), /*draw=*/0, absl::MakeSpan(shifted).subspan(1));
    const auto unaligned = absl::MakeSpan(shifted).subspan(1);
    EXPECT_EQ(MessageDifferences(codec(), options(), count, unaligned, message), "");
    std::vector<float> decoded(values.size());
    ASSERT_TRUE(codec().decode(unaligned, options(), false, absl::MakeSpan(decoded)).ok());
    EXPECT_EQ(kernels::Differences(decoded, RoundTrip(values)), "");
  }
}

TEST_P(CodecConformanceTest, LargeMessagesShrinkAndNoMessageGrowsByMoreThanItsHeader) {
  for (std::int64_t count : kCounts) EXPECT_LE(codec().encoded_bytes(count, options()), 4 * count + 24) << count;
  EXPECT_LE(codec().encoded_bytes(1 << 20, codec().defaults), (4 << 20) / 2);
}

TEST_P(CodecConformanceTest, AccumulateAddsTheDecodedValue) {
  for (std::int64_t count : kCounts) {
    const std::vector<float> values = MakeValues(Input::kUniform, count);
    const std::vector<float> decoded = RoundTrip(values);
    std::vector<float> sum(values.size(), 0.1f);
    ASSERT_TRUE(Decode(Encode(values), sum, /*accumulate=*/true).ok());
    std::vector<float> expected;
    for (const float value : decoded) expected.push_back(0.1f + value);
    EXPECT_EQ(kernels::Differences(sum, expected), "");
  }
}

TEST_P(CodecConformanceTest, ZeroStaysZero) {
  for (Input input : {Input::kZeros, Input::kSparse, Input::kLargest}) {
    if (input == Input::kLargest && codec().name == "minmax_uint8") continue;  // the range overflows
    if (input != Input::kZeros && !keeps_every_zero()) continue;
    const std::vector<float> values = MakeValues(input, 3000);
    const std::vector<float> decoded = RoundTrip(values);
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_TRUE(values[i] != 0 || decoded[i] == 0.0f)
          << Name(input) << ": element " << i << " of " << values.size() << " is " << decoded[i] << ", expected 0";
    }
  }
}

TEST_P(CodecConformanceTest, NoErrorIsAboveTheBoundOfTheRecord) {
  for (Input input : kAllInputs) {
    for (std::int64_t count : {1, 13, 100, 1025, 3000}) {
      const std::vector<float> values = MakeValues(input, count);
      const std::vector<float> decoded = RoundTrip(values);
      const std::int64_t block = BlockOf(count);
      for (std::int64_t begin = 0; begin < count; begin += block) {
        const double bound = codec().largest_error(absl::MakeConstSpan(values).subspan(begin, block), options());
        ASSERT_GE(bound, 0) << Name(input) << " " << begin;
        if (std::isinf(bound)) continue;
        for (std::int64_t i = begin; i < std::min(begin + block, count); ++i) {
          ASSERT_LE(std::abs(static_cast<double>(values[i]) - static_cast<double>(decoded[i])), bound)
              << Name(input) << ", element " << i << " of " << count << ": " << values[i] << " became " << decoded[i];
        }
      }
    }
  }
}

// An infinite bound lets every mistake pass.
TEST_P(CodecConformanceTest, TheBoundOfTheRecordIsFiniteForValuesOfOrdinarySize) {
  for (Input input : kAllInputs) {
    if (input == Input::kHuge || input == Input::kLargest || input == Input::kManyScales) continue;
    const std::vector<float> values = MakeValues(input, BlockOf(300));
    EXPECT_TRUE(std::isfinite(codec().largest_error(values, options()))) << Name(input);
  }
}

TEST_P(CodecConformanceTest, DrawsChangeStochasticRoundingAndNothingElse) {
  const std::vector<float> values = MakeValues(Input::kUniform, 3000);
  EXPECT_EQ(MessageDifferences(codec(), options(), 3000, Encode(values, 5), Encode(values, 5)), "");
  EXPECT_EQ(Encode(values, 5) == Encode(values, 6), options().rounding == Rounding::kNearest);
  CodecOptions seeded = options();
  seeded.seed = 77;
  if (!codec().validate(seeded).ok()) return;
  const bool random = options().rounding == Rounding::kStochastic || options().rotation;
  EXPECT_EQ(EncodeMessage(codec(), seeded, values) == Encode(values), !random);
}

// Rounding to nearest would fail here, because each element is wrong in the same direction every time. The random
// numbers are equal in every run of the test; the limits are six standard deviations.
TEST_P(CodecConformanceTest, StochasticRoundingIsRightOnAverage) {
  if (options().rounding != Rounding::kStochastic) GTEST_SKIP() << "the codec rounds to the nearest";
  constexpr int kDraws = Repetitions(400);
  for (Input input : {Input::kUniform, Input::kPositive, Input::kSparse}) {
    const std::vector<float> values = MakeValues(input, 400);
    std::vector<double> sums(values.size());
    double largest_error = 0, sum = 0, squares = 0;
    for (int draw = 0; draw < kDraws; ++draw) {
      const std::vector<float> decoded = tutti::RoundTrip(codec(), options(), values, draw);
      for (std::size_t i = 0; i < values.size(); ++i) {
        const double error = static_cast<double>(decoded[i]) - static_cast<double>(values[i]);
        sums[i] += error;
        sum += error;
        squares += error * error;
        largest_error = std::max(largest_error, std::abs(error));
      }
    }
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_LT(std::abs(sums[i]) / kDraws, 6 * largest_error / 2 / std::sqrt(kDraws))
          << Name(input) << " [" << i << "]";
    }
    EXPECT_LT(std::abs(sum), 6 * std::sqrt(squares) + 1e-3) << Name(input);
  }
}

TEST_P(CodecConformanceTest, NonFiniteValuesShowInTheirBlockAndNoOther) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr std::int64_t kCount = 4 * 1024 + 100;
  const std::vector<float> clean = RoundTrip(MakeValues(Input::kUniform, kCount));
  for (float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::signaling_NaN(), kInfinity, -kInfinity}) {
    for (std::int64_t position : {0, 1, 1023, 1024, 2500, 4096, 4195}) {
      std::vector<float> values = MakeValues(Input::kUniform, kCount);
      values[position] = bad;
      const std::vector<float> decoded = RoundTrip(values);
      const std::int64_t block = BlockOf(kCount);
      for (std::int64_t i = 0; i < kCount; ++i) {
        if (i == position && block == 1) {
          ASSERT_TRUE(std::isnan(bad) ? std::isnan(decoded[i]) : decoded[i] == bad) << i;
        } else if (i == position && codec().encoded_bytes(kCount, options()) == 4 * kCount + 24) {  // sent raw
          ASSERT_FALSE(std::isfinite(decoded[i])) << i;
        } else if (i / block == position / block && codec().encoded_bytes(kCount, options()) < 4 * kCount) {
          ASSERT_TRUE(std::isnan(decoded[i])) << i;
        } else {
          ASSERT_EQ(decoded[i], clean[i]) << i;
        }
      }
    }
  }
}

TEST_P(CodecConformanceTest, EveryChangedHeaderByteIsRefused) {
  if (!has_header()) GTEST_SKIP() << "a message of this codec is its elements alone";
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
  std::vector<CodecOptions> others(4, options());
  others[0].block = options().block == 64 ? 128 : 64;
  others[1].rotation = !options().rotation;
  others[2].density = 0.5;
  others[3].seed = 3;
  for (std::size_t i = 0; i < others.size(); ++i) {
    // A decoder needs the seed only for the rotation.
    if (!codec().validate(others[i]).ok() || (i == 3 && !options().rotation)) continue;
    std::vector<float> values(1500);
    EXPECT_EQ(codec().decode(message, others[i], false, absl::MakeSpan(values)).code(), absl::StatusCode::kDataLoss)
        << ToString({&codec(), others[i]});
  }
}

TEST_P(CodecConformanceTest, DamagedAndRandomPayloadsDoNoHarm) {
  SplitMix random(5);
  for (std::int64_t count : {1, 15, 1500}) {
    const std::vector<std::uint8_t> message = Encode(MakeValues(Input::kManyScales, count));
    const std::size_t header = has_header() ? 24 : 0;
    for (int round = 0; round < 200; ++round) {
      std::vector<std::uint8_t> damaged = message;
      const std::size_t changes = round % 3 == 0 ? damaged.size() - header : 1 + random.Next() % 20;
      for (std::size_t k = 0; k < changes; ++k) {
        const std::size_t at = round % 3 == 0 ? k : random.Next() % (damaged.size() - header);
        damaged[header + at] = static_cast<std::uint8_t>(random.Next());
      }
      ExpectNoHarm(damaged, count, round % 2 == 0);
    }
  }
}

TEST_P(CodecConformanceTest, RandomMessagesOfAnyLengthDoNoHarm) {
  SplitMix random(6);
  for (int round = 0; round < 300; ++round) {
    const auto count = static_cast<std::int64_t>(random.Next() % 300);
    const bool right_length = round % 2 == 0;
    const auto other_length = static_cast<std::int64_t>(random.Next() % 300);
    std::vector<std::uint8_t> message(right_length ? codec().encoded_bytes(count, options()) : other_length);
    for (std::uint8_t& byte : message) byte = static_cast<std::uint8_t>(random.Next());
    ExpectNoHarm(message, count, round % 3 == 0);
  }
}

TEST_P(CodecConformanceTest, OptionsThatMakeNoSenseAreRefused) {
  for (std::int64_t block : {-1, 1, 2, 3, 1000, -1024}) {
    CodecOptions wrong = options();
    wrong.block = block;
    const absl::Status status = codec().validate(wrong);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << block;
    EXPECT_NE(status.message().find("block"), absl::string_view::npos) << status;
  }
}

// An option that a codec does not take is refused with an error that lists the options it takes; an option that a codec
// takes has at least one accepted value besides the default.
TEST_P(CodecConformanceTest, TakesTheOptionsItListsAndNoOther) {
  const std::vector<std::string> taken = absl::StrSplit(codec().options, ", ");
  for (const absl::string_view name : {"block", "rounding", "seed", "rotation", "density"}) {
    CodecOptions other = codec().defaults;
    if (name == "block") other.block = codec().defaults.block == 64 ? 32 : 64;
    if (name == "rounding") other.rounding = Rounding::kStochastic;
    if (name == "seed") other.seed = 5;
    if (name == "rotation") other.rotation = true;
    if (name == "density") other.density = 0.25;
    const absl::Status status = codec().validate(other);
    if (std::find(taken.begin(), taken.end(), name) != taken.end()) {
      EXPECT_TRUE(status.ok()) << status;
    } else {
      EXPECT_EQ(status.message(), absl::StrCat(codec().name, ": ", name, "=", OptionText(other, name),
                                               " is not an option of this codec; valid options: ", codec().options));
    }
  }
}

std::string CaseName(const testing::TestParamInfo<CodecChoice>& info) {
  return absl::StrReplaceAll(ToString(info.param), {{":", "_"}, {"=", "_"}, {",", "_"}, {".", "_"}});
}

INSTANTIATE_TEST_SUITE_P(All, CodecConformanceTest, testing::ValuesIn(EveryChoice()), CaseName);

TEST(WireHeaderTest, NoTwoCodecsHaveTheSameNumber) {
  std::map<std::uint8_t, absl::string_view> names;
  for (const Codec* codec : AllCodecs()) {
    if (codec->linear.has_value()) continue;
    const std::uint8_t number = EncodeMessage(*codec, codec->defaults, {})[5];
    EXPECT_TRUE(names.emplace(number, codec->name).second)
        << codec->name << " and " << names[number] << " are both " << int{number};
  }
}

TEST(FindCodecTest, UnknownNamesListTheValidOnes) {
  const absl::Status status = FindCodec("uint9").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  for (const Codec* codec : AllCodecs()) {
    EXPECT_NE(status.message().find(codec->name), absl::string_view::npos) << status;
  }
}

}  // namespace
}  // namespace tutti
