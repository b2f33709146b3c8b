#include "bindings/cli/advise/report.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "bindings/cli/advise/quantities.h"
#include "nlohmann/json.hpp"
#include "tutti/algorithm.h"

namespace tutti::cli {
namespace {

using Json = nlohmann::ordered_json;

// A gain that is smaller is no reason to train in another way.
constexpr double kMinGain = 0.02;

bool Competes(const AdvisedStrategy& strategy, const AdvisedTraining& training) {
  switch (strategy.asks) {
    case Asks::kNothing:
      return true;
    case Asks::kAdam:
      return training.uses_adam;
    case Asks::kLossOfAccuracy:
      return training.accepts_loss;
  }
  return false;
}

std::string PageOf(const AdvisedStrategy& strategy) {
  const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(strategy.name, absl::MaxSplits(':', 1));
  return absl::StrCat("docs/algorithms/", parts.first, ".md");
}

// The flag that would let the strategy compete.
absl::string_view FlagFor(Asks asks) {
  return asks == Asks::kAdam ? "--adam" : asks == Asks::kLossOfAccuracy ? "--accept-loss" : "";
}

bool Encodes(const AdvisedStrategy& strategy) {
  const absl::StatusOr<Strategy> parsed = ParseStrategy(strategy.name);
  return parsed.ok() && CodecOf(*parsed).codec != nullptr;
}

// Whether messages in a codec make a step shorter than exact ones of fp32, in some strategy that competes.
bool CompressionPays(const Advice& advice) {
  return std::any_of(advice.rows.begin(), advice.rows.end(), [&](const AdvisedRow& row) {
    return row.competes && row.prediction.ok() && Encodes(*row.strategy) &&
           row.prediction->step_s * (1 + kMinGain) < advice.exact.step_s;
  });
}

// The rows in the order in which they are shown.
void Sort(std::vector<AdvisedRow>& rows) {
  const auto place = [](const AdvisedRow& row) { return !row.prediction.ok() ? 2 : row.competes ? 0 : 1; };
  std::stable_sort(rows.begin(), rows.end(), [&](const AdvisedRow& a, const AdvisedRow& b) {
    if (place(a) != place(b)) return place(a) < place(b);
    return a.prediction.ok() && a.prediction->step_s < b.prediction->step_s;
  });
  // Pointers to strategies are in the order in which strategies change more and more of the training.
  auto advised = rows.begin();
  for (auto row = rows.begin(); row != rows.end() && place(*row) == 0; ++row) {
    const bool as_fast = row->prediction->step_s <= rows.front().prediction->step_s * (1 + kMinGain);
    if (as_fast && row->strategy < advised->strategy) advised = row;
  }
  std::rotate(rows.begin(), advised, advised + 1);
}

std::string Milliseconds(double seconds) {
  const double ms = seconds * 1e3;
  return absl::StrFormat("%.*f", ms < 100 ? 1 : 0, ms);
}

std::string About(const AdvisedTraining& training) {
  std::string text = absl::StrFormat("%d ranks", training.ranks);
  if (training.one_node()) {
    absl::StrAppend(&text, " on one node");
  } else {
    absl::StrAppend(&text, ", ", training.ranks_per_node, " on each node, over links of ",
                    FormatRate(training.model.between_nodes.bytes_per_s));
  }
  absl::StrAppend(&text, "; ", training.parameters, " parameters of fp32");
  if (training.layer_parameters > 1) absl::StrAppend(&text, " in layers of up to ", training.layer_parameters);
  absl::StrAppend(&text, "; a step",
                  training.backwards > 1 ? absl::StrCat(" of ", training.backwards, " backwards") : "", " takes ",
                  Milliseconds(training.step_s), " ms when nothing is exchanged");
  if (training.cores_per_rank > 0) {
    absl::StrAppend(&text, ", and keeps the ", training.cores_per_rank, " processors of a rank busy");
  }
  return text;
}

}  // namespace

absl::StatusOr<Advice> Advise(const AdvisedTraining& training) {
  Advice advice{.training = training, .exact = {}, .rows = {}};
  for (const AdvisedStrategy& strategy : AdvisedStrategies()) {
    if (strategy.on_shared_links && !training.shares_links()) continue;
    const absl::StatusOr<Strategy> parsed = ParseStrategy(strategy.name);
    if (!parsed.ok()) return parsed.status();
    advice.rows.push_back({&strategy, Competes(strategy, training), PredictStep(*parsed, training)});
  }
  if (!advice.rows.front().prediction.ok()) return advice.rows.front().prediction.status();
  advice.exact = *advice.rows.front().prediction;
  Sort(advice.rows);
  return advice;
}

std::string InWords(const Advice& advice) {
  const AdvisedRow& best = advice.rows.front();
  const StepPrediction& step = *best.prediction;
  std::string text = absl::StrCat("Advice: ", best.strategy->name, ".");
  if (!CompressionPays(advice)) absl::StrAppend(&text, " Compression does not pay here.");
  if (best.strategy == &AdvisedStrategies().front()) {
    double least_s = step.step_s;
    for (const AdvisedRow& row : advice.rows) {
      if (row.competes && row.prediction.ok()) least_s = std::min(least_s, row.prediction->step_s);
    }
    const double shorter = 1 - least_s / step.step_s;
    absl::StrAppendFormat(&text,
                          " Gradients travel for %s ms, of which backward hides %.0f %%; no strategy that competes "
                          "makes a step%s shorter.",
                          Milliseconds(step.communication_s), 100 * step.hidden(advice.training),
                          shorter > 0 ? absl::StrFormat(" more than %.0f %%", std::ceil(100 * shorter)) : "");
    return text;
  }
  absl::StrAppendFormat(&text, " A step takes %s ms, where fp32 gradient_allreduce takes %s ms: %.2f times as fast.",
                        Milliseconds(step.step_s), Milliseconds(advice.exact.step_s), advice.SpeedOf(step));
  const double waits_s = step.step_s - advice.training.step_s;
  if (waits_s > advice.training.step_s / 10) {
    absl::StrAppendFormat(&text, " Communication still makes a step %s ms longer.", Milliseconds(waits_s));
  }
  return text;
}

std::string ToTable(const Advice& advice) {
  constexpr char kFormat[] = "%-60s %10s %9s %7s %9s %8s%s\n";
  std::string text = absl::StrCat(About(advice.training), "\n\n");
  absl::StrAppendFormat(&text, kFormat, "strategy", "MB moved", "travels", "hidden", "step", "speed",
                        "  costs in accuracy");
  absl::StrAppendFormat(&text, kFormat, "", "by a rank", "(ms)", "", "(ms)", "(times)", "");
  for (const AdvisedRow& row : advice.rows) {
    if (!row.prediction.ok()) {
      absl::StrAppend(&text, row.strategy->name, ": ", row.prediction.status().message(), "\n");
      continue;
    }
    const StepPrediction& step = *row.prediction;
    const std::string aside = row.competes ? "" : absl::StrCat(" (competes with ", FlagFor(row.strategy->asks), ")");
    absl::StrAppendFormat(
        &text, kFormat, row.strategy->name, absl::StrFormat("%.2f", static_cast<double>(step.wire_bytes) / 1e6),
        Milliseconds(step.communication_s), absl::StrFormat("%.0f %%", 100 * step.hidden(advice.training)),
        Milliseconds(step.step_s), absl::StrFormat("%.2f", advice.SpeedOf(step)),
        absl::StrCat("  ", row.strategy->accuracy, aside));
  }
  return absl::StrCat(text, "\n", InWords(advice), "\nRead ", PageOf(*advice.rows.front().strategy),
                      " before you take it. Times are predicted, in steady state; measure them in your training.\n");
}

std::string ToJson(const Advice& advice) {
  const AdvisedTraining& training = advice.training;
  Json rows = Json::array();
  for (const AdvisedRow& row : advice.rows) {
    Json& shown = rows.emplace_back(Json{{"strategy", row.strategy->name},
                                         {"competes", row.competes},
                                         {"competes_with", FlagFor(row.strategy->asks)},
                                         {"accuracy", row.strategy->accuracy},
                                         {"page", PageOf(*row.strategy)}});
    if (!row.prediction.ok()) {
      shown["refused"] = std::string(row.prediction.status().message());
      continue;
    }
    shown["wire_bytes"] = row.prediction->wire_bytes;
    shown["communication_s"] = row.prediction->communication_s;
    shown["hidden"] = row.prediction->hidden(training);
    shown["step_s"] = row.prediction->step_s;
    shown["speed"] = advice.SpeedOf(*row.prediction);
  }
  const Json document = {{"training",
                          {{"ranks", training.ranks},
                           {"ranks_per_node", training.ranks_per_node},
                           {"link_bytes_per_s", training.model.between_nodes.bytes_per_s},
                           {"delay_s", training.model.between_nodes.latency_s},
                           {"parameters", training.parameters},
                           {"layer_parameters", training.layer_parameters},
                           {"step_s", training.step_s},
                           {"backwards", training.backwards},
                           {"cores_per_rank", training.cores_per_rank}}},
                         {"advice", advice.rows.front().strategy->name},
                         {"in_words", InWords(advice)},
                         {"strategies", rows}};
  return absl::StrCat(document.dump(1), "\n");
}

}  // namespace tutti::cli
