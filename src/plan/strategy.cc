#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "plan/hierarchy.h"
#include "plan/registry.h"
#include "plan/strategy_options.h"
#include "tutti/algorithm.h"
#include "tutti/peer_selection.h"
#include "tutti/schedule.h"

namespace tutti {
namespace {

std::string NamesOf(absl::Span<const AlgorithmOption> options) {
  return absl::StrJoin(options, ", ",
                       [](std::string* out, const AlgorithmOption& option) { absl::StrAppend(out, option.name); });
}

// Ends the process, which runs an algorithm whose author has made a mistake. There is no number to go on with.
[[noreturn]] void EndForMistake(const std::string& mistake) {
  std::fprintf(stderr, "tutti: %s\n", mistake.c_str());
  std::abort();
}

absl::StatusOr<const Algorithm*> FindAlgorithm(absl::string_view name) {
  std::vector<absl::string_view> valid;
  for (const Algorithm* algorithm : AllAlgorithms()) {
    if (algorithm->name == name) return algorithm;
    valid.push_back(algorithm->name);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("no algorithm is named '", name, "'; valid: ", absl::StrJoin(valid, ", "), MissingExtension()));
}

// Sets the option that one "option=value" names. `given` marks the options that were set before.
absl::Status ApplyOption(absl::string_view setting, absl::Span<const AlgorithmOption> options, Strategy& strategy,
                         std::vector<bool>& given) {
  if (setting.empty())
    return absl::InvalidArgumentError("an option is empty; an option=value must follow every colon and comma");
  const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(setting, absl::MaxSplits('=', 1));
  const auto option = std::find_if(options.begin(), options.end(),
                                   [&](const AlgorithmOption& candidate) { return candidate.name == parts.first; });
  if (option == options.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("unknown option '", parts.first, "'",
                     strategy.has("codec") ? absl::StrCat(" with codec=", strategy.option("codec")) : "",
                     "; valid: ", NamesOf(options)));
  }
  const std::size_t index = option - options.begin();
  if (given[index]) return absl::InvalidArgumentError(absl::StrCat("option ", option->name, " is given twice"));
  given[index] = true;
  strategy.options[index].second = std::string(parts.second);
  return option->check(*option, parts.second);
}

// Sets every option to its default, then to what `settings` say.
absl::Status ApplySettings(absl::Span<const absl::string_view> settings, Strategy& strategy) {
  const Algorithm& algorithm = *strategy.algorithm;
  std::vector<AlgorithmOption> options(algorithm.options.begin(), algorithm.options.end());
  for (const AlgorithmOption& option : options) strategy.options.emplace_back(option.name, option.default_value);
  if (!algorithm.codec.empty()) {
    if (absl::Status status = AppendCodecOptions(settings, options, strategy); !status.ok()) return status;
  }
  std::vector<bool> given(options.size());
  for (const absl::string_view setting : settings) {
    if (absl::Status status = ApplyOption(setting, options, strategy, given); !status.ok()) return status;
  }
  for (std::size_t i = 0; i < algorithm.options.size(); ++i) {
    const AlgorithmOption& option = algorithm.options[i];
    const absl::Status valid = given[i] ? absl::OkStatus() : option.check(option, option.default_value);
    if (!valid.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the record of the algorithm has a default that is not valid: ", valid.message()));
    }
  }
  const CodecChoice choice = CodecOf(strategy);
  return choice.codec == nullptr ? absl::OkStatus() : choice.codec->validate(choice.options);
}

}  // namespace

absl::string_view Name(Exchanges exchanges) {
  switch (exchanges) {
    case Exchanges::kGradients:
      return "gradients";
    case Exchanges::kWeights:
      return "weights";
    case Exchanges::kMomentum:
      return "momentum";
    case Exchanges::kWeightDifferences:
      return "weight differences";
  }
  return "";
}

absl::string_view Name(Phase phase) {
  switch (phase) {
    case Phase::kBackward:
      return "backward";
    case Phase::kForward:
      return "forward";
    case Phase::kAfterStep:
      return "after the step";
    case Phase::kBackground:
      return "background";
  }
  return "";
}

absl::Status NotOneOf(const AlgorithmOption& option, absl::string_view value, absl::string_view valid) {
  return absl::InvalidArgumentError(absl::StrCat("option ", option.name, "=", value, "; valid: ", valid));
}

absl::Status CheckListed(const AlgorithmOption& option, absl::string_view value) {
  const std::vector<absl::string_view> valid = absl::StrSplit(option.values, " | ");
  if (std::find(valid.begin(), valid.end(), value) != valid.end()) return absl::OkStatus();
  return NotOneOf(option, value, absl::StrJoin(valid, ", "));
}

absl::Status CheckSchedule(const AlgorithmOption& option, absl::string_view value) {
  std::vector<absl::string_view> valid = {"auto"};
  for (const Schedule* schedule : AllSchedules()) {
    if (schedule->collective == Collective::kAllReduce) valid.push_back(schedule->name);
  }
  if (std::find(valid.begin(), valid.end(), value) != valid.end()) return absl::OkStatus();
  return NotOneOf(option, value, absl::StrCat(absl::StrJoin(valid, ", "), MissingExtension()));
}

absl::Status CheckPeerSelection(const AlgorithmOption& option, absl::string_view value) {
  std::vector<absl::string_view> valid;
  for (const PeerSelection* selection : AllPeerSelections()) {
    if (selection->name == value) return absl::OkStatus();
    valid.push_back(selection->name);
  }
  return NotOneOf(option, value, absl::StrCat(absl::StrJoin(valid, ", "), MissingExtension()));
}

absl::Status CheckPositive(const AlgorithmOption& option, absl::string_view value) {
  std::int64_t number = 0;
  if (absl::SimpleAtoi(value, &number) && number >= 1) return absl::OkStatus();
  return NotOneOf(option, value, option.values);
}

absl::Status CheckNotNegative(const AlgorithmOption& option, absl::string_view value) {
  std::int64_t number = -1;
  if (absl::SimpleAtoi(value, &number) && number >= 0) return absl::OkStatus();
  return NotOneOf(option, value, option.values);
}

bool Strategy::has(absl::string_view name) const {
  return std::any_of(options.begin(), options.end(), [name](const auto& option) { return option.first == name; });
}

absl::string_view Strategy::option(absl::string_view name) const {
  for (const auto& [key, value] : options) {
    if (key == name) return value;
  }
  const auto append_name = [](std::string* out, const auto& option) { absl::StrAppend(out, option.first); };
  EndForMistake(absl::StrCat("algorithm ", algorithm->name, " asks for its option '", name, "', which it has not; ",
                             options.empty() ? "it has none" : "it has ", absl::StrJoin(options, ", ", append_name)));
}

std::int64_t Strategy::integer(absl::string_view name) const {
  std::int64_t number = 0;
  if (absl::SimpleAtoi(option(name), &number)) return number;
  EndForMistake(absl::StrCat("algorithm ", algorithm->name, " asks for its option ", name,
                             " as a whole number, but it is '", option(name),
                             "', which the check of this option must refuse (CheckPositive does)"));
}

std::string Strategy::ToString() const {
  return absl::StrCat(algorithm->name, options.empty() ? "" : ":",
                      absl::StrJoin(options, ",", absl::PairFormatter("=")));
}

absl::StatusOr<Strategy> ParseStrategy(absl::string_view strategy_name) {
  const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(strategy_name, absl::MaxSplits(':', 1));
  const auto mistake = [&](const absl::Status& status) {
    return absl::InvalidArgumentError(absl::StrCat("strategy '", strategy_name, "': ", status.message()));
  };
  absl::StatusOr<const Algorithm*> algorithm = FindAlgorithm(parts.first);
  if (!algorithm.ok()) return mistake(algorithm.status());

  Strategy strategy;
  strategy.algorithm = *algorithm;
  std::vector<absl::string_view> settings;
  if (absl::StrContains(strategy_name, ':')) settings = absl::StrSplit(parts.second, ',');
  if (absl::Status status = ApplySettings(settings, strategy); !status.ok()) return mistake(status);
  return strategy;
}

std::vector<Rank> ParticipantsOf(const Strategy& strategy, int size, const PlanOptions& options) {
  if (IsBetweenNodes(strategy, options)) return Hierarchy(options, size).leaders();
  std::vector<Rank> all(size);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

int RoundsOf(const Strategy& strategy, int participants) {
  return strategy.algorithm->rounds == nullptr ? 1 : strategy.algorithm->rounds(strategy, participants);
}

RoundOfStep RoundOf(const Strategy& strategy, int participants) {
  if (strategy.algorithm->round_of != nullptr) return strategy.algorithm->round_of(strategy, participants);
  return [](std::int64_t /*step*/) { return 0; };
}

std::vector<double> MixingOf(const Strategy& strategy, int round, Rank participant, int participants) {
  if (strategy.algorithm->mixing == nullptr) return {};
  return strategy.algorithm->mixing(strategy, round, participant, participants);
}

bool Averages(const Strategy& strategy) { return !strategy.has("average") || strategy.option("average") != "false"; }

bool ExchangesWeights(const Algorithm& algorithm) {
  return algorithm.exchanges == Exchanges::kWeights || algorithm.exchanges == Exchanges::kWeightDifferences;
}

bool WorksInPlace(const Algorithm& algorithm) {
  return algorithm.phase == Phase::kBackward || algorithm.phase == Phase::kAfterStep;
}

absl::StatusOr<Plan> BuildPlan(const Strategy& strategy, DType dtype, std::int64_t count, Rank rank, int size,
                               const PlanOptions& options, int round) {
  if (strategy.algorithm == nullptr) {
    return absl::InvalidArgumentError("the strategy has no algorithm; expected one that ParseStrategy makes");
  }
  const Algorithm& algorithm = *strategy.algorithm;
  CollectiveSpec bucket;
  bucket.dtype = dtype;
  bucket.op = Averages(strategy) ? ReduceOp::kAvg : ReduceOp::kSum;
  bucket.count = count;
  bucket.in_place = WorksInPlace(algorithm);
  if (absl::Status status = Validate(bucket, rank, size); !status.ok()) return status;
  if (absl::Status valid = options.Check(size); !valid.ok()) return valid;
  const auto participants = static_cast<int>(ParticipantsOf(strategy, size, options).size());
  const int rounds = RoundsOf(strategy, participants);
  if (round < 0 || round >= rounds) {
    return absl::InvalidArgumentError(
        absl::StrCat("round ", round, " of ", algorithm.name, " must be in 0…", rounds - 1));
  }
  absl::Status status = algorithm.supports(strategy, bucket, participants, options);
  PlanBuilder builder(std::string(algorithm.name), bucket, rank, size, options);
  if (status.ok() && IsBetweenNodes(strategy, options)) {
    status = BuildBetweenNodes(strategy, round, Hierarchy(options, size), builder);
  } else if (status.ok()) {
    algorithm.build(strategy, round, builder);
    std::vector<double> mixing = MixingOf(strategy, round, rank, size);
    if (!mixing.empty()) builder.PromiseMixing(std::move(mixing));
  }
  if (!status.ok()) {
    return absl::Status(status.code(), absl::StrCat("strategy ", strategy.ToString(), ": ", status.message()));
  }
  absl::StatusOr<Plan> plan = std::move(builder).Build();
  if (plan.ok()) plan->round = round;
  return plan;
}

}  // namespace tutti
