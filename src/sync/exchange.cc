#include "sync/exchange.h"

#include <cstdio>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "sync/agreement.h"
#include "sync/background_exchange.h"
#include "sync/gradient_exchange.h"
#include "sync/tuned_exchange.h"
#include "sync/tuning_space.h"
#include "sync/weight_exchange.h"
#include "tutti/algorithm.h"

namespace tutti {
namespace {

// Returns `made` when all ranks have made their exchange, otherwise an error on all ranks.
template <typename Kind>
absl::StatusOr<std::unique_ptr<Exchange>> OnAllRanks(SyncContext& context, absl::StatusOr<std::unique_ptr<Kind>> made) {
  absl::Status agreed = AgreeOnMemory(context.communicator, context.caller, made.status());
  if (!agreed.ok()) return agreed;
  return *std::move(made);
}

// Says on rank 0 that the options of the strategy stay as they are.
void SayNothingToTune(SyncContext& context, const std::string& reason) {
  context.tuning.state = TuningState::kNothingToTune;
  context.tuning.reason = reason;
  if (context.communicator.rank() != 0) return;
  std::fprintf(stderr, "tutti: autotuning has nothing to tune: %s\n", reason.c_str());
}

}  // namespace

absl::StatusOr<std::unique_ptr<Exchange>> MakeExchange(SyncContext& context, const Layout& layout,
                                                       const SynchronizerOptions& options) {
  if (options.autotune) {
    TuningSpace space = TuningSpaceOf(context.strategy, context.parameters, options, context.communicator.size(),
                                      context.communicator.plan_options());
    // The host does not wait for a GPU, so the host's times say nothing.
    if (context.memory->on_device()) space.reason = "the exchanges of a GPU are not timed";
    if (space.reason.empty())
      return OnAllRanks(context, TunedExchange::Create(context, layout, space, options.allow_unused));
    SayNothingToTune(context, space.reason);
  }
  const Algorithm& algorithm = *context.strategy.algorithm;
  if (algorithm.phase == Phase::kBackground) return MakeBackgroundExchange(context, layout, options.allow_unused);
  switch (algorithm.exchanges) {
    case Exchanges::kGradients:
      return OnAllRanks(context, GradientExchange::Create(context, context.strategy, layout, options.allow_unused));
    case Exchanges::kMomentum:
      return OnAllRanks(context, MomentumExchange::Create(context, layout, options.allow_unused));
    case Exchanges::kWeights:
    case Exchanges::kWeightDifferences:
      break;
  }
  return OnAllRanks(context, WeightExchange::Create(context, layout));
}

}  // namespace tutti
