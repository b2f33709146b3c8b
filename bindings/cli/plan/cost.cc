#include "bindings/cli/plan/cost.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tutti/schedule.h"

namespace tutti::cli {
namespace {

absl::StatusOr<Cost> CostOfRequest(const PlanRequest& request, const CostModel& model) {
  const absl::StatusOr<PlanFamily> family = Resolve(request);
  if (!family.ok()) return family.status();
  const absl::StatusOr<std::vector<Plan>> plans = BuildAll(*family);
  if (!plans.ok()) return plans.status();
  return CostOf(*plans, model);
}

std::string Heading(const CostModel& model) {
  return absl::StrCat("cost of the busiest rank; ", ToString(model), "\n") +
         absl::StrFormat("%-32s %10s %10s %14s %14s %12s\n", "", "steps", "messages", "wire bytes", "memory bytes",
                         "time (µs)");
}

}  // namespace

absl::StatusOr<std::vector<PlanCost>> CostsOf(const PlanRequest& request, const CostModel& model,
                                              absl::FunctionRef<void(const std::string& spec)> begins) {
  std::vector<PlanCost> costs;
  const absl::StatusOr<Collective> collective = ParseCollective(request.spec);
  if (!collective.ok()) {
    begins(request.spec);
    costs.push_back({request.spec, CostOfRequest(request, model)});
    if (!costs[0].cost.ok()) return costs[0].cost.status();
    return costs;
  }
  for (const Schedule* schedule : AllSchedules()) {
    if (schedule->collective != *collective) continue;
    PlanRequest one = request;
    one.spec = absl::StrCat(Name(*collective), ":", schedule->name);
    begins(one.spec);
    costs.push_back({one.spec, CostOfRequest(one, model)});
  }
  return costs;
}

std::string CostTable(absl::Span<const PlanCost> costs, const CostModel& model) {
  std::string table = Heading(model);
  for (const auto& [spec, cost] : costs) {
    if (cost.ok()) {
      absl::StrAppendFormat(&table, "%-32s %10d %10d %14d %14d %12.1f\n", spec, cost->steps, cost->messages,
                            cost->wire_bytes, cost->memory_bytes, cost->seconds * 1e6);
    } else {
      absl::StrAppendFormat(&table, "%-32s %s\n", spec, cost.status().message());
    }
  }
  return table;
}

}  // namespace tutti::cli
