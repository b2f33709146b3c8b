#include "sync/exchange.h"

#include <utility>

#include "absl/status/status.h"
#include "sync/agreement.h"
#include "sync/background_exchange.h"
#include "sync/gradient_exchange.h"
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

}  // namespace

absl::StatusOr<std::unique_ptr<Exchange>> MakeExchange(SyncContext& context, const Layout& layout,
                                                       const SynchronizerOptions& options) {
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
