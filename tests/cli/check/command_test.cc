// tutti check, which tries schedules, algorithms and codecs in many worlds.
#include "bindings/cli/command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "bindings/cli/check/checks.h"
#include "tests/cli/command_run.h"
#include "tutti/extension.h"
#include "tutti/plan_builder.h"
#include "tutti/version.h"

namespace tutti::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

void ExpectWrong(const absl::StatusOr<std::string>& found, const ::testing::Matcher<std::string>& text) {
  EXPECT_EQ(found.status().code(), absl::StatusCode::kFailedPrecondition) << found.status();
  EXPECT_THAT(std::string(found.status().message()), text);
}

TEST(CheckTest, RightNamesAreRight) {
  const CommandRun run = RunTutti("check all_gather:ring gradient_allreduce codec=uint4_block");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, AllOf(HasSubstr("all_gather:ring: the plans of "), HasSubstr("all_gather:ring: the results of "),
                             HasSubstr("gradient_allreduce: the plans of "), HasSubstr("codec=uint4_block: "),
                             HasSubstr("a million elements take 14.06 % of their bytes")));
}

TEST(CheckTest, UnknownNamesAreRefused) {
  EXPECT_THAT(RunTutti("check all_gather:rong").err, HasSubstr("unknown schedule 'rong' of all_gather; valid: "));
  EXPECT_THAT(RunTutti("check codec=uint9").err, HasSubstr("unknown codec 'uint9'; valid: "));
  EXPECT_THAT(RunTutti("check bytegrat").err,
              AllOf(HasSubstr("no algorithm is named 'bytegrat'"), HasSubstr("a codec codec=NAME")));
  EXPECT_EQ(RunTutti("check bytegrat").exit_code, 2);
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
              AllOf(HasSubstr("3 ranks in mapped memory, count 1, out of place: "), HasSubstr("element")));
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
  ExpectWrong(CheckCodec(codec),
              HasSubstr("1 elements, one not finite: decoded from nan: element 0 of 1 is 0, expected NaN"));
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

}  // namespace
}  // namespace tutti::cli
