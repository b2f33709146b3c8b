// toy: every rank trains by itself, and every few steps the ranks average their weights (local SGD).
//
// After Stich, 2018, https://arxiv.org/abs/1805.09767.
#include "absl/status/status.h"
#include "tutti/algorithm.h"
#include "tutti/bucket_support.h"
#include "tutti/selector.h"

namespace tutti {
namespace {

constexpr AlgorithmOption kOptions[] = {
    {"interval", "4", "1, 2, …", "steps from one average to the next", CheckPositive},
};

RoundOfStep RoundsOfSteps(const Strategy& strategy, int /*size*/) {
  const std::int64_t interval = strategy.integer("interval");
  return [interval](std::int64_t step) { return (step + 1) % interval == 0 ? 0 : kNoExchange; };
}

absl::Status Supports(const Strategy& /*strategy*/, const CollectiveSpec& bucket, int size, const PlanOptions& plan) {
  if (absl::Status valid = CheckAveragedWeights(bucket.dtype); !valid.ok()) return valid;
  return CheckServed(bucket, size, plan);
}

void Build(const Strategy& /*strategy*/, int /*round*/, PlanBuilder& b) { BuildSelected(b); }

}  // namespace
}  // namespace tutti

TUTTI_ALGORITHM(toy) = {
    .name = "toy",
    .summary = "Average the weights exactly, every few steps",
    .cost = "2(n-1)/n · N bytes, every few steps",
    .exchanges = tutti::Exchanges::kWeights,
    .phase = tutti::Phase::kAfterStep,
    .options = tutti::kOptions,
    .round_of = tutti::RoundsOfSteps,
    .supports = tutti::Supports,
    .build = tutti::Build,
};
