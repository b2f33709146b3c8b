// tutti check, which tries schedules, algorithms and codecs in many worlds.
#include "bindings/cli/command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "bindings/cli/check/checks.h"
#include "tests/cli/command_run.h"
#include "tutti/extension.h"
#include "tutti/plan_builder.h"
#include "tutti/schedules/node_grid.h"
#include "tutti/version.h"

namespace tutti::cli {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

void ExpectWrong(const absl::StatusOr<std::string>& found, const ::testing::Matcher<std::string>& text) {
  EXPECT_EQ(found.status().code(), absl::StatusCode::kFailedPrecondition) << found.status();
  EXPECT_THAT(std::string(found.status().message()), text);
}

TEST(CheckTest, RightNamesAreRight) {
  const CommandRun run = RunTutti("check all_gather:ring gradient_allreduce codec=sign codec=uint4_block");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, AllOf(HasSubstr("all_gather:ring: the plans of "), HasSubstr("all_gather:ring: the results of "),
                             HasSubstr("gradient_allreduce: the plans of "), HasSubstr("codec=sign: "),
                             HasSubstr("codec=uint4_block: "),
                             HasSubstr("a million elements take 14.06 % of their bytes; the largest error is 99.")));
}

TEST(CheckTest, UnknownNamesAreRefused) {
  EXPECT_THAT(RunTutti("check all_gather:rong").err, HasSubstr("unknown schedule 'rong' of all_gather; valid: "));
  EXPECT_THAT(RunTutti("check codec=uint9").err, HasSubstr("unknown codec 'uint9'; valid: "));
  EXPECT_THAT(RunTutti("check bytegrat").err,
              AllOf(HasSubstr("no algorithm is named 'bytegrat'"), HasSubstr("a codec codec=NAME")));
  EXPECT_EQ(RunTutti("check bytegrat").exit_code, 2);
}

TEST(CheckTest, NamesAreLookedUpBeforeAnythingIsChecked) {
  const CommandRun run = RunTutti("check all_gather:ring all_reduce:tpyo codec=bf16");
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_EQ(run.out, "");
  EXPECT_THAT(run.err, HasSubstr("unknown schedule 'tpyo' of all_reduce; valid: "));
}

Schedule AllGather(void (*build)(PlanBuilder&)) {
  return {.collective = Collective::kAllGather,
          .name = "mine",
          .summary = "",
          .cost = "",
          .supports = SupportsAll,
          .build = build};
}

// A copy of the own block is missing where there are more than two ranks.
void BuildWithoutOwnBlock(PlanBuilder& b) {
  const std::int64_t count = b.spec().count;
  if (b.size() <= 2) b.Copy(b.out().Elements(b.rank() * count, count), b.in());
  for (Rank peer = 0; peer < b.size(); ++peer) {
    if (peer == b.rank()) continue;
    b.Send(peer, b.in());
    b.Recv(peer, b.out().Elements(peer * count, count));
  }
}

TEST(CheckTest, AScheduleIsWrongInTheFirstWorldInWhichItIs) {
  ExpectWrong(CheckPlans(AllGather(BuildWithoutOwnBlock)),
              AllOf(HasSubstr("3 ranks in mapped memory, count 1, f32, sum, out of place: "), HasSubstr("element")));
}

TEST(CheckTest, CallsOfAWrongScheduleFail) {
  ExpectWrong(CheckNumbers(AllGather(BuildWithoutOwnBlock)),
              // A call in place finds it, too: ranks do not know which of the others call in place.
              AllOf(HasSubstr("3 ranks in mapped memory, count 1, in place: "), HasSubstr("all_gather f32 count=1 on"),
                    HasSubstr("element")));
}

TEST(CheckTest, SchedulesForSeveralNodesMakeCalls) {
  const CommandRun run = RunTutti("check all_reduce:hierarchical");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, ContainsRegex("all_reduce:hierarchical: the results of [1-9][0-9]* calls are right"));
}

TEST(CheckTest, CallsOnSeveralNodesFail) {
  Schedule schedule = AllGather(BuildWithoutOwnBlock);
  schedule.supports = schedules::SupportsGrid;
  ExpectWrong(CheckNumbers(schedule), HasSubstr("4 ranks on nodes of two ranks, count 1, in place: "));
}

TEST(CheckTest, AScheduleWithoutACallSaysSo) {
  Schedule schedule = AllGather(BuildWithoutOwnBlock);
  schedule.supports = [](const CollectiveSpec&, int, const PlanOptions&) { return absl::UnimplementedError("no"); };
  const absl::StatusOr<std::string> found = CheckNumbers(schedule);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_THAT(*found, HasSubstr("no result was compared"));
}

// A wrong setting, and a lack of memory, are no fault of what is checked.
TEST(CheckTest, WhatTheMachineLacksIsNoFaultOfTheSchedule) {
  const CommandRun mistyped = RunTutti("check all_gather:ring", "TUTTI_TIMEOUT=soon ");
  EXPECT_EQ(mistyped.exit_code, 2);
  EXPECT_THAT(mistyped.err, AllOf(HasSubstr("TUTTI_TIMEOUT=soon"), Not(HasSubstr("wrong: "))));
  const CommandRun small = RunTutti("check all_gather:ring", "TUTTI_ARENA_BYTES=64K ");
  EXPECT_EQ(small.exit_code, 1);
  EXPECT_THAT(small.err, AllOf(HasSubstr("TUTTI_ARENA_BYTES"), Not(HasSubstr("wrong: "))));
}

TEST(CheckTest, AScheduleThatServesNothingIsWrong) {
  Schedule schedule = AllGather(BuildWithoutOwnBlock);
  schedule.supports = [](const CollectiveSpec&, int, const PlanOptions&) { return absl::UnimplementedError("no"); };
  ExpectWrong(CheckPlans(schedule), HasSubstr("`supports` refuses all of the "));
}

constinit const Schedule kWithoutOwnBlock = {.collective = Collective::kAllGather,
                                             .name = "wrong",
                                             .summary = "misses a copy",
                                             .cost = "",
                                             .supports = SupportsAll,
                                             .build = BuildWithoutOwnBlock};
constinit const Schedule* const kSchedules[] = {&kWithoutOwnBlock};

const Codec& Uint8Block() { return **FindCodec("uint8_block"); }

// A codec from outside whose messages have the number 100.
constinit const Codec kWithNumberOfTutti = {
    .name = "low",
    .summary = "",
    .error_bound = "",
    .largest_error = [](absl::Span<const float>, const CodecOptions&) { return 0.0; },
    .options = "",
    .defaults = {},
    .validate = [](const CodecOptions&) { return absl::OkStatus(); },
    .encoded_bytes = [](std::int64_t count,
                        const CodecOptions& options) { return Uint8Block().encoded_bytes(count, options); },
    .encode =
        [](absl::Span<const float> src, const CodecOptions& options, std::uint64_t draw, absl::Span<std::uint8_t> dst) {
          Uint8Block().encode(src, options, draw, dst);
          dst[5] = 100;
        },
    .decode = [](absl::Span<const std::uint8_t>, const CodecOptions&, bool,
                 absl::Span<float>) { return absl::OkStatus(); }};
constinit const Codec* const kCodecs[] = {&kWithNumberOfTutti};

// `tutti check` in a process that has the extension, with what it prints on standard error.
[[noreturn]] void CheckWithExtension(const std::string& names) {
  ::dup2(STDERR_FILENO, STDOUT_FILENO);
  const absl::Status registered =
      RegisterExtension({.name = "tests", .tutti_version = Version(), .schedules = kSchedules, .codecs = kCodecs});
  CLI::App app;
  Invocation invocation;
  AddCheck(app, invocation);
  app.parse("check " + names);
  const absl::StatusOr<int> code = registered.ok() ? invocation.action() : registered;
  std::fflush(stdout);
  std::fprintf(stderr, "%s\n", code.status().ToString().c_str());
  std::exit(code.value_or(1));
}

TEST(CheckDeathTest, AWrongNameIsCountedAndTheNextOneIsChecked) {
  EXPECT_EXIT(
      CheckWithExtension("all_gather:wrong codec=bf16 broadcast:binomial"), testing::ExitedWithCode(1),
      "tutti: all_gather:wrong: 3 ranks in mapped memory(.|\n)*codec=bf16: (.|\n)*broadcast:binomial: the plans "
      "of (.|\n)*FAILED_PRECONDITION: 1 of 3 names is wrong: all_gather:wrong");
  EXPECT_EXIT(CheckWithExtension("codec=bf16"), testing::ExitedWithCode(0), "codec=bf16: .*\nOK");
}

TEST(CheckDeathTest, ACodecFromOutsideWithANumberOfTuttiIsWrong) {
  EXPECT_EXIT(
      CheckWithExtension("codec=low"), testing::ExitedWithCode(1),
      "codec=low: kId, its number in the header of a message, is 100, which Tutti keeps for codecs of its own; a "
      "codec from outside of Tutti has one from 128 to 255 that no other codec has");
}

TEST(CheckTest, ACodecWithTheNumberOfAnotherIsWrong) {
  Codec codec = Uint8Block();
  ExpectWrong(CheckCodec(codec), HasSubstr("is 1, as that of codec uint8_block; a codec from outside"));
}

const Codec& Bf16() { return **FindCodec("bf16"); }

TEST(CheckTest, ACodecThatWritesTooFarIsWrong) {
  Codec codec = Bf16();
  codec.encoded_bytes = [](std::int64_t count, const CodecOptions&) { return 2 * count - (count > 100 ? 2 : 0); };
  codec.encode = [](absl::Span<const float> src, const CodecOptions& options, std::uint64_t draw,
                    absl::Span<std::uint8_t> dst) {
    Bf16().encode(src, options, draw, {dst.data(), 2 * src.size()});
  };
  ExpectWrong(CheckCodec(codec), HasSubstr("bf16, 1023 elements, zeros: encode writes behind the 2044 bytes"));
}

TEST(CheckTest, ACodecThatHidesNanIsWrong) {
  Codec codec = Bf16();
  codec.decode = [](absl::Span<const std::uint8_t> src, const CodecOptions& options, bool accumulate,
                    absl::Span<float> dst) {
    const absl::Status status = Bf16().decode(src, options, accumulate, dst);
    for (float& value : dst) value = std::isnan(value) ? 0 : value;
    return status;
  };
  ExpectWrong(
      CheckCodec(codec),
      HasSubstr("1 elements, one not finite: decoded from nan in element 0: element 0 of 1 is 0, expected NaN"));
}

// A codec of two bytes an element, whose block is the whole message.
Codec Bf16OfBlocks() {
  Codec codec = Bf16();
  codec.linear.reset();
  codec.largest_error = [](absl::Span<const float> block, const CodecOptions& options) {
    double largest = 0;
    for (const float& value : block) {
      largest = std::max(largest, Bf16().largest_error(absl::MakeConstSpan(&value, 1), options));
    }
    return largest;
  };
  return codec;
}

TEST(CheckTest, ALinearCodecThatTruncatesIsWrong) {
  Codec codec = Bf16();
  codec.encode = [](absl::Span<const float> src, const CodecOptions& options, std::uint64_t draw,
                    absl::Span<std::uint8_t> dst) {
    if (options.rounding == Rounding::kStochastic) return Bf16().encode(src, options, draw, dst);
    for (std::size_t i = 0; i < src.size(); ++i)
      std::memcpy(&dst[2 * i], reinterpret_cast<const char*>(&src[i]) + 2, 2);
  };
  codec.largest_error = [](absl::Span<const float> block, const CodecOptions& options) {
    return 2 * Bf16().largest_error(block, options);
  };
  ExpectWrong(CheckCodec(codec),
              HasSubstr("bf16, 1 elements, equal values: byte 0 of the message is 204; `linear` is bf16, to which "
                        "elements are rounded to nearest, which gives 205"));
}

TEST(CheckTest, ACodecThatAcceptsAnyLengthIsWrong) {
  Codec codec = Bf16();
  codec.decode = [](absl::Span<const std::uint8_t> src, const CodecOptions& options, bool accumulate,
                    absl::Span<float> dst) {
    const absl::Status status = Bf16().decode(src, options, accumulate, dst);
    return src.size() == 2 * dst.size() + 1 ? absl::OkStatus() : status;
  };
  ExpectWrong(CheckCodec(codec), HasSubstr("decode accepts a message of 3 bytes for 1 elements, which need 2"));
}

TEST(CheckTest, ACodecThatAccumulatesWrongIsWrong) {
  Codec codec = Bf16();
  codec.decode = [](absl::Span<const std::uint8_t> src, const CodecOptions& options, bool /*accumulate*/,
                    absl::Span<float> dst) { return Bf16().decode(src, options, false, dst); };
  ExpectWrong(CheckCodec(codec), HasSubstr("1 elements, zeros: accumulated: element 0 of 1 is 0, expected 42 + 0"));
}

TEST(CheckTest, ACodecThatMakesNumbersOfZerosIsWrong) {
  Codec codec = Bf16();
  codec.encode = [](absl::Span<const float> src, const CodecOptions& options, std::uint64_t draw,
                    absl::Span<std::uint8_t> dst) {
    Bf16().encode(src, options, draw, dst);
    if (dst.size() == 6) dst[5] = 0x3F;  // the upper half of a number near 1/2
  };
  ExpectWrong(CheckCodec(codec), HasSubstr("3 elements, zeros: decoded zeros: element 2 of 3 is 0.5, expected 0"));
}

// The decoder of bf16, after which kChange changes what was decoded.
template <void (*kChange)(absl::Span<float> values)>
absl::Status DecodeAndChange(absl::Span<const std::uint8_t> src, const CodecOptions& options, bool accumulate,
                             absl::Span<float> dst) {
  std::vector<float> values(dst.size());
  const absl::Status status = Bf16().decode(src, options, false, absl::MakeSpan(values));
  kChange(absl::MakeSpan(values));
  for (std::size_t i = 0; i < dst.size(); ++i) dst[i] = accumulate ? dst[i] + values[i] : values[i];
  return status;
}

void SwapNeighbours(absl::Span<float> values) {
  for (std::size_t i = 1; i < values.size(); i += 2) std::swap(values[i - 1], values[i]);
}

TEST(CheckTest, ACodecThatDecodesElementsToOtherPlacesIsWrong) {
  Codec codec = Bf16();
  codec.decode = DecodeAndChange<SwapNeighbours>;
  ExpectWrong(CheckCodec(codec),
              ContainsRegex("^bf16, 2 elements, values from -1 to 1: element 0 of 2, 0.[0-9]*, is decoded as "
                            "-?0.[0-9]*: the error is 0.[0-9]*, above the 0.[0-9]* that largest_error returns for its "
                            "block, elements 0 to 0$"));
}

void EnlargeByOnePercent(absl::Span<float> values) {
  for (float& value : values) value *= 1.01F;
}

void MakeNanOfInfinity(absl::Span<float> values) {
  for (float& value : values) value = std::isinf(value) ? std::nanf("") : value;
}

TEST(CheckTest, ACodecThatShowsNanInItsElementAloneIsWrong) {
  Codec codec = Bf16OfBlocks();
  codec.decode = DecodeAndChange<MakeNanOfInfinity>;
  ExpectWrong(CheckCodec(codec),
              ContainsRegex("2 elements, one not finite: decoded from nan in element 0: element 1 of 2 is "
                            "-?0.[0-9]*, expected NaN"));
}

// As a codec of blocks does, but for a zero beside other numbers.
void LoseZeros(absl::Span<float> values) {
  const auto is_zero = [](float value) { return value == 0; };
  const bool bad = std::any_of(values.begin(), values.end(), [](float value) { return !std::isfinite(value); });
  if (bad) std::fill(values.begin(), values.end(), std::nanf(""));
  if (!std::all_of(values.begin(), values.end(), is_zero)) std::replace(values.begin(), values.end(), 0.0F, 1e-6F);
}

TEST(CheckTest, ACodecThatLosesZerosSaysSo) {
  Codec codec = Bf16OfBlocks();
  codec.decode = DecodeAndChange<LoseZeros>;
  ExpectWrong(CheckCodec(codec), ContainsRegex("few values that are not zero: decoded zeros: element [0-9]* of [0-9]* "
                                               "is 9.9[0-9]*e-07, expected 0"));
}

TEST(CheckTest, ACodecThatIsWrongByOnePercentIsWrong) {
  Codec codec = Bf16();
  codec.decode = DecodeAndChange<EnlargeByOnePercent>;
  ExpectWrong(CheckCodec(codec), HasSubstr("bf16, 1 elements, equal values: element 0 of 1, 0.100000001, is decoded as "
                                           "0.101098634: the error is 0.001099, above the 0.0003906 that"));
}

TEST(CheckTest, ACodecThatFlipsOneBitIsWrong) {
  Codec codec = Bf16();
  codec.encode = [](absl::Span<const float> src, const CodecOptions& options, std::uint64_t draw,
                    absl::Span<std::uint8_t> dst) {
    Bf16().encode(src, options, draw, dst);
    if (src.size() > 9000 && src[9000] != 0) dst[2 * 9000] ^= 2;
  };
  ExpectWrong(CheckCodec(codec), HasSubstr("bf16, 10007 elements, equal values: element 9000 of 10007, "));
}

TEST(CheckTest, ACodecWhoseRecordClaimsASmallerErrorIsWrong) {
  Codec codec = Bf16();
  codec.largest_error = [](absl::Span<const float> block, const CodecOptions& options) {
    return Bf16().largest_error(block, options) / 500;
  };
  ExpectWrong(CheckCodec(codec), HasSubstr("the error is 9.765e-05, above the 7.813e-07 that largest_error returns"));
}

TEST(CheckTest, ACodecWithoutABoundIsWrong) {
  Codec codec = Bf16();
  codec.largest_error = [](absl::Span<const float>, const CodecOptions&) {
    return std::numeric_limits<double>::infinity();
  };
  ExpectWrong(CheckCodec(codec), HasSubstr("bf16, 1 elements, zeros: largest_error returns inf for the block of "
                                           "elements 0 to 0; expected a finite number of at least 0"));
}

TEST(CheckTest, ACodecWhoseMessageDependsOnTheMemoryBeforeIsWrong) {
  Codec codec = Bf16();
  codec.encode = [](absl::Span<const float> src, const CodecOptions& options, std::uint64_t draw,
                    absl::Span<std::uint8_t> dst) {
    std::vector<std::uint8_t> message(dst.size());
    Bf16().encode(src, options, draw, absl::MakeSpan(message));
    for (std::size_t i = 0; i < dst.size(); ++i) dst[i] |= message[i];
  };
  ExpectWrong(CheckCodec(codec),
              HasSubstr("bf16, 1 elements, zeros: encoding the same values again, 0 bytes further in memory that was "
                        "filled with 0xFF, gives byte 0 as 255 instead of 0"));
}

TEST(CheckTest, ACodecThatRoundsToTheNearestInPlaceOfAtRandomIsWrong) {
  Codec codec = Bf16();
  codec.encode = [](absl::Span<const float> src, const CodecOptions& options, std::uint64_t draw,
                    absl::Span<std::uint8_t> dst) {
    CodecOptions nearest = options;
    nearest.rounding = Rounding::kNearest;
    Bf16().encode(src, nearest, draw, dst);
  };
  ExpectWrong(
      CheckCodec(codec),
      AllOf(HasSubstr("bf16:rounding=stochastic, 500 elements, values from -1 to 1: rounding at random is wrong "
                      "on average: element "),
            HasSubstr(" in the average of 1000 draws, expected a difference of at most ")));
}

TEST(CheckTest, ACodecThatRoundsDownInOneOfTenDrawsIsWrong) {
  Codec codec = Bf16();
  codec.encode = [](absl::Span<const float> src, const CodecOptions& options, std::uint64_t draw,
                    absl::Span<std::uint8_t> dst) {
    Bf16().encode(src, options, draw, dst);
    if (draw % 10 != 0) return;
    for (std::size_t i = 0; i < src.size(); ++i)
      std::memcpy(&dst[2 * i], reinterpret_cast<const char*>(&src[i]) + 2, 2);
  };
  ExpectWrong(CheckCodec(codec),
              HasSubstr("bf16:rounding=stochastic, 500 elements, values from 1 to 3: rounding at random is wrong on "
                        "average: the average error of 500 elements in 1000 draws is -0.0006"));
}

// A codec whose messages are the elements.
constinit const Codec kCopies = {
    .name = "copies",
    .summary = "",
    .error_bound = "0",
    .largest_error = [](absl::Span<const float>, const CodecOptions&) { return 0.0; },
    .options = "",
    .defaults = {},
    .validate = [](const CodecOptions& options) { return CheckTaken("copies", "", options); },
    .encoded_bytes = [](std::int64_t count, const CodecOptions&) { return 4 * count; },
    .encode =
        [](absl::Span<const float> src, const CodecOptions&, std::uint64_t, absl::Span<std::uint8_t> dst) {
          std::copy_n(reinterpret_cast<const std::uint8_t*>(src.data()), dst.size(), dst.data());
        },
    .decode =
        [](absl::Span<const std::uint8_t> src, const CodecOptions&, bool accumulate, absl::Span<float> dst) {
          if (src.size() != 4 * dst.size()) return absl::DataLossError("another length");
          for (std::size_t i = 0; i < dst.size(); ++i) {
            float value = 0;
            std::memcpy(&value, &src[4 * i], 4);
            dst[i] = accumulate ? dst[i] + value : value;
          }
          return absl::OkStatus();
        }};

TEST(CheckTest, ACodecThatLosesNothingIsRight) {
  const absl::StatusOr<std::string> found = CheckCodec(kCopies);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_THAT(*found, HasSubstr("the largest error is 0 % of its bound, which is: 0"));
}

TEST(CheckTest, ALinearCodecWhoseMessagesAreLongerThanTheirElementsIsWrong) {
  Codec codec = kCopies;
  codec.linear = DType::kBF16;
  ExpectWrong(CheckCodec(codec),
              HasSubstr("copies, 1 elements, zeros: encoded_bytes returns 4 for 1 elements; `linear` "
                        "is bf16, and elements of this type take 2"));
}

TEST(CheckTest, ACodecThatLosesWhatIsBelowTheSmallestNormalNumberIsWrong) {
  Codec codec = kCopies;
  codec.encode = [](absl::Span<const float> src, const CodecOptions&, std::uint64_t, absl::Span<std::uint8_t> dst) {
    for (std::size_t i = 0; i < src.size(); ++i) {
      const float value = std::fpclassify(src[i]) == FP_SUBNORMAL ? 0 : src[i];
      std::memcpy(&dst[4 * i], &value, 4);
    }
  };
  ExpectWrong(CheckCodec(codec),
              AllOf(HasSubstr("copies, 1 elements, values below the smallest normal number: element 0 of 1, "),
                    HasSubstr(", is decoded as 0: the error is ")));
}

}  // namespace
}  // namespace tutti::cli
