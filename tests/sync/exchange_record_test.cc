// What a record of an algorithm says wrong is an error of the step, or of making the exchange, on every rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "sync/buckets.h"
#include "sync/exchange.h"
#include "sync/sync_context.h"
#include "tests/harness/world.h"
#include "tutti/extension.h"
#include "tutti/qadam.h"
#include "tutti/selector.h"
#include "tutti/version.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

absl::Status Supports(const Strategy& /*strategy*/, const CollectiveSpec& /*bucket*/, int /*size*/,
                      const PlanOptions& /*plan*/) {
  return absl::OkStatus();
}
void Build(const Strategy& /*strategy*/, int /*round*/, PlanBuilder& b) { BuildSelected(b); }

// Averages weights in every step, in round 0; the round of step 2 there is not.
constexpr Algorithm WithoutThatRound(Phase phase) {
  return {.name = "mine",
          .summary = "",
          .cost = "",
          .exchanges = Exchanges::kWeights,
          .phase = phase,
          .options = {},
          .round_of = [](const Strategy&, int) -> RoundOfStep {
            return [](std::int64_t step) { return step == 2 ? 7 : 0; };
          },
          .supports = Supports,
          .build = Build};
}
constinit const Algorithm kWithoutThatRound[] = {WithoutThatRound(Phase::kForward),
                                                 WithoutThatRound(Phase::kAfterStep)};

constinit const Algorithm kWithoutRounds = {.name = "mine",
                                            .summary = "",
                                            .cost = "",
                                            .exchanges = Exchanges::kWeights,
                                            .phase = Phase::kAfterStep,
                                            .options = {},
                                            .rounds = [](const Strategy&, int) { return 0; },
                                            .supports = Supports,
                                            .build = Build};

// Makes an exchange of one parameter and calls `use` with it, or with the error.
template <typename Use>
void WithExchange(Communicator& world, const Algorithm& algorithm, Use use) {
  std::vector<float> weights(5, 0);
  const std::vector<Parameter> parameters = {{.name = "w", .count = 5, .shape = "5", .weights = weights.data()}};
  const Strategy strategy{.algorithm = &algorithm, .options = {}};
  SyncContext context{.communicator = world,
                      .memory = *BucketMemory::Create(world, MemoryKind::kHost),
                      .caller = *Caller::Create(world, CallOwner::Kind::kSynchronizer),
                      .parameters = parameters,
                      .strategy = strategy,
                      .participants = ParticipantsOf(strategy, world.size(), world.plan_options())};
  use(MakeExchange(context, LayOutBuckets(parameters, 1 << 20, 1 << 20), {}));
}

absl::Status Step(Exchange& exchange) {
  if (absl::Status status = exchange.BeginForward(); !status.ok()) return status;
  if (absl::Status status = exchange.BeforeStep(); !status.ok()) return status;
  return exchange.AfterStep();
}

// The step may be tried again, and does not go on without its exchange.
TEST(RecordOfAlgorithm, ARoundThatThereIsNotIsAnErrorOnAllRanks) {
  const absl::Status error = absl::InvalidArgumentError(
      "algorithm mine: round 7 is to run in training step 2 (from 0 on), must be in 0…0: see round_of and rounds of "
      "its "
      "record");
  for (const Algorithm& algorithm : kWithoutThatRound) {
    for (const std::string& transport : WorldTransports()) {
      RunWorld(3, {.transport = transport}, [&](Communicator& world) {
        WithExchange(world, algorithm, [&](const absl::StatusOr<std::unique_ptr<Exchange>>& exchange) {
          ASSERT_EQ(exchange.status(), absl::OkStatus());
          EXPECT_EQ(Step(**exchange), absl::OkStatus());
          EXPECT_EQ(Step(**exchange), absl::OkStatus());
          for (int times = 0; times < 3; ++times) EXPECT_EQ(Step(**exchange), error) << times;
        });
        EXPECT_EQ(world.status(), absl::OkStatus()) << "the communicator goes on";
      });
    }
  }
}

// Averages in the background after a warm-up whose buckets keep residuals.
constinit const Algorithm kWarmsUpWithResiduals = {.name = "mine",
                                                   .summary = "",
                                                   .cost = "",
                                                   .exchanges = Exchanges::kWeights,
                                                   .phase = Phase::kBackground,
                                                   .options = {},
                                                   .supports = Supports,
                                                   .build = Build,
                                                   .background = [](const Strategy&) {
                                                     return BackgroundRounds{
                                                         .interval = absl::Seconds(100),
                                                         .interval_option = "",
                                                         .warmup_steps = 10,
                                                         .warmup_strategy = "bytegrad:codec=bf16,error_feedback=true"};
                                                   }};

TEST(RecordOfAlgorithm, RestartForgetsTheResidualsOfAWarmUp) {
  RunWorld(2, [](Communicator& world) {
    WithExchange(world, kWarmsUpWithResiduals, [](const absl::StatusOr<std::unique_ptr<Exchange>>& exchange) {
      ASSERT_EQ(exchange.status(), absl::OkStatus());
      ASSERT_EQ((*exchange)->BeginBackward(), absl::OkStatus());
      std::fill_n(static_cast<float*>((*exchange)->GradientView(0).get()), 5, 1.0f + 0x1p-20f);  // no bf16 is that
      (*exchange)->MarkReady(0, nullptr);
      ASSERT_EQ((*exchange)->FinishBackward(), absl::OkStatus());
      const auto has_residuals = [&] {
        const absl::StatusOr<absl::Span<ExchangeBucket>> buckets = (*exchange)->BucketsToSave();
        const ExchangeBucket& bucket = (*buckets)[0];
        const auto* const values = reinterpret_cast<const float*>(bucket.AddressOf(bucket.states()[0]));
        return std::any_of(values, values + bucket.states()[0].range.count(), [](float value) { return value != 0; });
      };
      EXPECT_TRUE(has_residuals());
      EXPECT_EQ((*exchange)->Restart(), absl::OkStatus());
      EXPECT_FALSE(has_residuals());
    });
  });
}

TEST(RecordOfAlgorithm, AnAlgorithmWithoutRoundsIsAnErrorOnAllRanks) {
  RunWorld(2, [](Communicator& world) {
    WithExchange(world, kWithoutRounds, [](const absl::StatusOr<std::unique_ptr<Exchange>>& exchange) {
      EXPECT_THAT(std::string(exchange.status().message()),
                  HasSubstr("algorithm mine: rounds gives 0 for 2 ranks, must give at least 1"));
    });
  });
}

// Loads a state after a step that was refused, in a process that has the algorithm; exits with what came of it.
[[noreturn]] void LoadAfterARefusedStep() {
  static constexpr const Algorithm* kMine[] = {&kWithoutThatRound[1]};
  std::string said = RegisterExtension({.name = "tests", .tutti_version = Version(), .algorithms = kMine}).ToString();
  RunWorld(2, [&](Communicator& world) {
    std::vector<float> weights(5, 0);
    const auto synchronizer = Synchronizer::Create(
        world, {{.name = "w", .count = 5, .shape = "5", .weights = weights.data()}}, {.strategy = "mine"});
    const std::vector<std::string> state = {(*synchronizer)->SaveState()};
    absl::Status stepped;
    for (int step = 0; step < 3; ++step) {
      (void)(*synchronizer)->BeforeStep();
      stepped = (*synchronizer)->AfterStep();
    }
    const absl::Status loaded = (*synchronizer)->LoadState(state);
    if (world.rank() == 0)
      absl::StrAppend(&said, ", ", absl::StatusCodeToString(stepped.code()), ", ", loaded.ToString());
  });
  std::fprintf(stderr, "%s\n", said.c_str());
  std::exit(3);
}

TEST(RecordOfAlgorithmDeathTest, WhatIsLoadedDoesNotDependOnTheLastStep) {
  EXPECT_EXIT(LoadAfterARefusedStep(), testing::ExitedWithCode(3), "OK, INVALID_ARGUMENT, OK");
}

constexpr Algorithm Momentum(absl::string_view name, absl::string_view optimizer,
                             absl::Span<const AlgorithmOption> options) {
  return {.name = name,
          .summary = "",
          .cost = "",
          .exchanges = Exchanges::kMomentum,
          .phase = Phase::kBackward,
          .options = options,
          .supports = Supports,
          .build = Build,
          .optimizer = optimizer};
}

absl::Status AnyText(const AlgorithmOption& /*option*/, absl::string_view /*value*/) { return absl::OkStatus(); }
constinit const AlgorithmOption kOddOptions[] = {{"warmup_steps", "soon", "any text", "no number", AnyText},
                                                 {"freeze", "steps", "any text", "as of qadam", AnyText}};
constinit const Algorithm kWithoutOptions = Momentum("mine", "Mine", {});
constinit const Algorithm kWithOddOptions = Momentum("odd", "Odd", kOddOptions);
constinit const Algorithm* const kAlgorithms[] = {&kWithoutOptions, &kWithOddOptions};

// Makes a QAdam for `strategy`, in a process that has kAlgorithms; exits with the error.
[[noreturn]] void MakeQAdamFor(const std::string& strategy) {
  std::string said =
      RegisterExtension({.name = "tests", .tutti_version = Version(), .algorithms = kAlgorithms}).ToString();
  RunWorld(1, [&](Communicator& world) {
    std::vector<float> weights(5, 0);
    const auto synchronizer = Synchronizer::Create(
        world, {{.name = "w", .count = 5, .shape = "5", .weights = weights.data()}}, {.strategy = strategy});
    const absl::Status made =
        QAdam::Create(**synchronizer, {{.data = weights.data(), .group = 0}}, {{.lr = 0.1}}).status();
    absl::StrAppend(&said, ", ", made.ToString());
  });
  std::fprintf(stderr, "%s\n", said.c_str());
  std::exit(3);
}

TEST(RecordOfAlgorithmDeathTest, QAdamNeedsItsOptions) {
  EXPECT_EXIT(MakeQAdamFor("mine"), testing::ExitedWithCode(3),
              "OK, FAILED_PRECONDITION: QAdam needs a strategy with the option warmup_steps, which mine has not");
  EXPECT_EXIT(
      MakeQAdamFor("odd"), testing::ExitedWithCode(3),
      "OK, FAILED_PRECONDITION: QAdam needs the option warmup_steps of odd as a whole number, but it is 'soon'");
}

}  // namespace
}  // namespace tutti
