// async: every rank trains at its own pace, and in the background the ranks average their weights again and again:
//
//   w0 ← x (snapshot of the weights x);  s ← Σ w0;  x ← (s/n - w0) + x (n: ranks)
//
// so that what was learnt since the snapshot is kept.
//
// The plan is the average of the snapshots; src/sync/async_average.h takes the snapshots and begins the rounds. Before
// the first round, `warmup_steps` steps average gradients; `max_staleness` bounds the steps between a snapshot and its
// correction of x. After Bagua's AsyncModelAverage (Lian et al., AD-PSGD, 2018, https://arxiv.org/abs/1710.06952).
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "tutti/algorithm.h"
#include "tutti/bucket_support.h"
#include "tutti/selector.h"

namespace tutti {
namespace {

constexpr AlgorithmOption kOptions[] = {
    {"hierarchical", "true", "true | false", "average inside each node first; no effect on one node", CheckListed},
    {"peer_selection_mode", "all", "all", "with whom a rank averages its weights", CheckListed},
    {"sync_interval_ms", "500", "1, 2, …",
     "pause from the end of a round to the next, in milliseconds, less than the communicator's timeout", CheckPositive},
    {"max_staleness", "0", "0, 1, …",
     "an average is applied at most that many optimizer steps after its snapshot; 0: however late it comes",
     CheckNotNegative},
    {"warmup_steps", "0", "0, 1, …", "steps before the first round, which average gradients", CheckNotNegative},
};

absl::Status Supports(const Strategy& /*strategy*/, const CollectiveSpec& bucket, int size, const PlanOptions& plan) {
  if (absl::Status valid = CheckAveragedWeights(bucket.dtype); !valid.ok()) return valid;
  return CheckServed(bucket, size, plan);
}

BackgroundRounds Background(const Strategy& strategy) {
  return {.interval = absl::Milliseconds(strategy.integer("sync_interval_ms")),
          .interval_option = "sync_interval_ms",
          .max_staleness = strategy.integer("max_staleness"),
          .warmup_steps = strategy.integer("warmup_steps"),
          .warmup_strategy = absl::StrCat("gradient_allreduce:hierarchical=", strategy.option("hierarchical"))};
}

void Build(const Strategy& /*strategy*/, int /*round*/, PlanBuilder& b) { BuildSelected(b); }

}  // namespace
}  // namespace tutti

TUTTI_ALGORITHM(async) = {
    .name = "async",
    .summary = "Average the weights in the background, while every rank trains at its own pace",
    .cost = "2(n-1)/n · N bytes per round",
    .exchanges = tutti::Exchanges::kWeights,
    .phase = tutti::Phase::kBackground,
    .options = tutti::kOptions,
    .supports = tutti::Supports,
    .build = tutti::Build,
    .background = tutti::Background,
};
