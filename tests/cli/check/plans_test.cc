// tutti check, of schedules and algorithms whose functions break their contract.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "bindings/cli/check/checks.h"
#include "bindings/cli/command.h"
#include "tests/cli/command_run.h"
#include "tutti/extension.h"
#include "tutti/selector.h"
#include "tutti/version.h"

namespace tutti::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string FaultOf(const absl::StatusOr<std::string>& found) {
  EXPECT_EQ(found.status().code(), absl::StatusCode::kFailedPrecondition) << found.status();
  return std::string(found.status().message());
}

absl::Status SupportsEveryBucket(const Strategy& /*strategy*/, const CollectiveSpec& /*bucket*/, int /*size*/,
                                 const PlanOptions& /*plan*/) {
  return absl::OkStatus();
}

constexpr AlgorithmOption kInterval[] = {{"interval", "4", "1, 2, …", "", CheckPositive}};

Algorithm Averaging(RoundOfStep (*round_of)(const Strategy&, int)) {
  return {.name = "mine",
          .summary = "",
          .cost = "",
          .exchanges = Exchanges::kWeights,
          .phase = Phase::kAfterStep,
          .options = kInterval,
          .round_of = round_of,
          .supports = SupportsEveryBucket,
          .build = [](const Strategy&, int, PlanBuilder& b) { BuildSelected(b); }};
}

Strategy Of(const Algorithm& algorithm) { return {.algorithm = &algorithm, .options = {{"interval", "4"}}}; }

TEST(CheckPlansTest, ARoundThatThereIsNotIsFound) {
  const Algorithm mine = Averaging([](const Strategy&, int) -> RoundOfStep {
    return [](std::int64_t step) { return step < 200 ? kNoExchange : 7; };
  });
  EXPECT_EQ(FaultOf(CheckPlans(Of(mine))),
            "1 ranks in mapped memory: round_of gives round 7 in step 200, must be in 0…0, or kNoExchange");
}

TEST(CheckPlansTest, RoundsThatChangeAreFound) {
  Algorithm mine = Averaging([](const Strategy&, int) -> RoundOfStep {
    static std::atomic<int> calls = 0;
    return [](std::int64_t) { return ++calls == 300 + 12 ? kNoExchange : 0; };
  });
  EXPECT_EQ(FaultOf(CheckPlans(Of(mine))),
            "1 ranks in mapped memory: round_of gives round -1 in step 11, and gave 0 before: it must be a pure "
            "function");
  mine.rounds = [](const Strategy&, int) { return 0; };
  EXPECT_EQ(FaultOf(CheckPlans(Of(mine))), "1 ranks in mapped memory: rounds gives 0, must give at least 1");
}

TEST(CheckPlansTest, AnotherPlanOfTheSameRankIsFound) {
  const Schedule changes = {.collective = Collective::kAllReduce,
                            .name = "mine",
                            .summary = "",
                            .cost = "",
                            .supports = SupportsAll,
                            .build = [](PlanBuilder& b) {
                              static int calls = 0;
                              const Ref values = ++calls % 2 == 0 ? b.Scratch(b.spec().dtype, b.spec().count) : b.in();
                              if (calls % 2 == 0) b.Copy(values, b.in());
                              b.Copy(b.out(), values);
                            }};
  EXPECT_EQ(FaultOf(CheckPlans(changes)),
            "1 ranks in mapped memory, count 1, f32, sum, in place: Build gave two different plans for rank 0: it must "
            "be a pure function; step 0 is first missing, then copy scratch[0,4) f32 = out[0,4) f32");
}

TEST(CheckPlansTest, WhatWasTriedIsSaid) {
  const CommandRun run = RunTutti("check barrier:dissemination decentralized");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(
      run.out,
      AllOf(HasSubstr("in worlds of 1 to 9 ranks, counts 0, 1, ranks + 1 and 97"),
            HasSubstr("; others: tutti plan barrier:dissemination --ranks N --count C --verify\n"),
            HasSubstr("calls are right, element by element: counts 0, 1, ranks + 1, 97 and 4099 of f32\n"),
            HasSubstr("buckets of 0, 1, 97 and 4097 elements"), HasSubstr("tutti plan decentralized --ranks N")));
}

TEST(CheckPlansTest, NamesThatAreNoneAreToldTheForm) {
  const CommandRun alone = RunTutti("check all_gather");
  EXPECT_EQ(alone.exit_code, 2);
  EXPECT_THAT(alone.err, AllOf(HasSubstr("'all_gather' is no schedule, which is COLLECTIVE:NAME; valid: "),
                               HasSubstr("all_gather:ring")));
  const CommandRun options = RunTutti("check codec=uint8_block,block=8");
  EXPECT_EQ(options.exit_code, 2);
  EXPECT_THAT(options.err, HasSubstr("options are not taken here, because every set of options that the codec takes "
                                     "is tried; write codec=uint8_block\n"));
}

// Faults of a third rank with count 1.
template <int kSignal>
void BuildWithSignal(PlanBuilder& b) {
  if (b.size() == 3 && b.rank() == 2 && b.spec().count == 1) (void)std::raise(kSignal);
  BuildSelected(b);
}

constexpr Schedule AllReduce(absl::string_view name, void (*build)(PlanBuilder&)) {
  return {.collective = Collective::kAllReduce,
          .name = name,
          .summary = "",
          .cost = "",
          .supports = SupportsAll,
          .build = build,
          .competes = [](const CollectiveSpec&, int, const PlanOptions&) {
            return absl::FailedPreconditionError("made for a test");
          }};
}

constinit const Schedule kDividesByZero = AllReduce("divides_by_zero", BuildWithSignal<SIGFPE>);
constinit const Schedule kIsInterrupted = AllReduce("is_interrupted", BuildWithSignal<SIGINT>);
constinit const Schedule* const kSchedules[] = {&kDividesByZero, &kIsInterrupted};

// A misspelt option.
constinit const Algorithm kMisspells = {.name = "misspells",
                                        .summary = "",
                                        .cost = "",
                                        .exchanges = Exchanges::kWeights,
                                        .phase = Phase::kAfterStep,
                                        .options = kInterval,
                                        .round_of = [](const Strategy& strategy, int) -> RoundOfStep {
                                          const std::int64_t interval = strategy.integer("intervall");
                                          return [interval](std::int64_t step) {
                                            return step % interval == 0 ? 0 : kNoExchange;
                                          };
                                        },
                                        .supports = SupportsEveryBucket,
                                        .build = [](const Strategy&, int, PlanBuilder& b) { BuildSelected(b); }};
constinit const Algorithm* const kAlgorithms[] = {&kMisspells};

// A codec that crashes where it encodes three elements.
const Codec& Bf16() { return **FindCodec("bf16"); }
constinit const Codec kCrashes = {
    .name = "crashes",
    .summary = "",
    .error_bound = "",
    .largest_error = [](absl::Span<const float>, const CodecOptions&) { return 1.0; },
    .options = "",
    .defaults = {},
    .linear = DType::kBF16,
    .validate = [](const CodecOptions& options) { return CheckTaken("crashes", "", options); },
    .encoded_bytes = [](std::int64_t count,
                        const CodecOptions& options) { return Bf16().encoded_bytes(count, options); },
    .encode =
        [](absl::Span<const float> src, const CodecOptions& options, std::uint64_t draw, absl::Span<std::uint8_t> dst) {
          if (src.size() == 3) (void)std::raise(SIGSEGV);
          Bf16().encode(src, options, draw, dst);
        },
    .decode = [](absl::Span<const std::uint8_t> src, const CodecOptions& options, bool accumulate,
                 absl::Span<float> dst) { return Bf16().decode(src, options, accumulate, dst); }};
constinit const Codec* const kCodecs[] = {&kCrashes};

// `tutti check` in a process that has the records above.
[[noreturn]] void CheckWithExtension(const std::string& name) {
  const absl::Status registered = RegisterExtension({.name = "tests",
                                                     .tutti_version = Version(),
                                                     .schedules = kSchedules,
                                                     .codecs = kCodecs,
                                                     .algorithms = kAlgorithms});
  CLI::App app;
  Invocation invocation;
  AddCheck(app, invocation);
  std::signal(SIGINT, SIG_DFL);  // a script that starts tests in the background ignores SIGINT
  app.parse("check " + name);
  const absl::StatusOr<int> code = registered.ok() ? invocation.action() : registered;
  std::exit(code.value_or(1));
}

TEST(CheckPlansDeathTest, ASignalNamesTheCaseAndEndsTheProcess) {
  EXPECT_EXIT(CheckWithExtension("all_reduce:divides_by_zero"), testing::KilledBySignal(SIGFPE),
              "tutti: SIGFPE while this was checked: all_reduce:divides_by_zero: 3 ranks in mapped memory, count 1, "
              "f32, sum, in place\n");
  EXPECT_EXIT(CheckWithExtension("all_reduce:is_interrupted"), testing::KilledBySignal(SIGINT),
              "tutti: SIGINT while this was checked: all_reduce:is_interrupted: 3 ranks in mapped memory, count 1, ");
}

TEST(CheckPlansDeathTest, ASignalInACodecNamesTheMessage) {
  EXPECT_EXIT(CheckWithExtension("codec=crashes"), testing::KilledBySignal(SIGSEGV),
              "tutti: SIGSEGV while this was checked: codec=crashes: crashes, 3 elements, zeros\n");
}

TEST(CheckPlansDeathTest, AMisspeltOptionIsNamed) {
  EXPECT_EXIT(CheckWithExtension("misspells"), testing::KilledBySignal(SIGABRT),
              "algorithm misspells asks for its option 'intervall', which it has not; it has interval\n"
              "tutti: SIGABRT while this was checked: misspells: 1 ranks in mapped memory, round_of\n");
}

}  // namespace
}  // namespace tutti::cli
