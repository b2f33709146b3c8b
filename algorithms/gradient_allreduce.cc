// gradient_allreduce: every rank ends with (1/n) Σ g, by one lossless all_reduce per bucket that overlaps with
// backward.
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tutti/algorithm.h"
#include "tutti/selector.h"

namespace tutti {
namespace {

constexpr AlgorithmOption kOptions[] = {
    {"average", "true", "true | false", "divide the sum of the gradients by the number of ranks", CheckListed},
    {"hierarchical", "false", "true | false", "reduce inside each node first; on one node it changes nothing",
     CheckListed},
    {"schedule", "auto", "auto, or a schedule of all_reduce", "how the bucket's bytes move", CheckSchedule},
};

// The one named by the option, or the one that suits the bucket.
absl::StatusOr<const Schedule*> ScheduleOf(const Strategy& strategy, const CollectiveSpec& bucket, int size,
                                           const PlanOptions& plan) {
  if (strategy.option("schedule") != "auto") return FindSchedule(Collective::kAllReduce, strategy.option("schedule"));
  absl::StatusOr<Selection> selection = SelectSchedule(bucket, size, plan);
  if (!selection.ok()) return selection.status();
  return selection->schedule;
}

absl::Status Supports(const Strategy& strategy, const CollectiveSpec& bucket, int size, const PlanOptions& plan) {
  if (strategy.flag("hierarchical") && !plan.one_node) {
    return absl::UnimplementedError("hierarchical=true needs all ranks on one node; use hierarchical=false");
  }
  absl::StatusOr<const Schedule*> schedule = ScheduleOf(strategy, bucket, size, plan);
  if (!schedule.ok()) return schedule.status();
  absl::Status supported = (*schedule)->supports(bucket, size, plan);
  if (supported.ok()) return supported;
  return absl::Status(supported.code(), absl::StrCat("schedule=", (*schedule)->name, ": ", supported.message()));
}

void Build(const Strategy& strategy, PlanBuilder& b) {
  (*ScheduleOf(strategy, b.spec(), b.size(), b.options()))->build(b);
}

}  // namespace
}  // namespace tutti

TUTTI_ALGORITHM(gradient_allreduce);
constinit const tutti::Algorithm tutti_algorithm_gradient_allreduce = {
    .name = "gradient_allreduce",
    .summary = "Average the gradients exactly while backward runs",
    .cost = "2(n-1)/n · N bytes",
    .exchanges = tutti::Exchanges::kGradients,
    .phase = tutti::Phase::kBackward,
    .options = tutti::kOptions,
    .supports = tutti::Supports,
    .build = tutti::Build,
};
