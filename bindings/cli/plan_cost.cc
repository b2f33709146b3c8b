#include "bindings/cli/plan_cost.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tutti/cost.h"
#include "tutti/schedule.h"

namespace tutti::cli {
namespace {

absl::StatusOr<std::string> Row(const PlanRequest& request, const CostModel& model) {
  const absl::StatusOr<PlanFamily> family = Resolve(request);
  if (!family.ok()) return family.status();
  const absl::StatusOr<std::vector<Plan>> plans = BuildAll(*family);
  if (!plans.ok()) return plans.status();
  const absl::StatusOr<Cost> cost = CostOf(*plans, model);
  if (!cost.ok()) return cost.status();
  return absl::StrFormat("%-32s %10d %10d %14d %14d %12.1f\n", request.spec, cost->steps, cost->messages,
                         cost->wire_bytes, cost->memory_bytes, cost->seconds * 1e6);
}

std::string Heading(const CostModel& model) {
  return absl::StrCat("cost of the busiest rank; ", ToString(model), "\n") +
         absl::StrFormat("%-32s %10s %10s %14s %14s %12s\n", "", "steps", "messages", "wire bytes", "memory bytes",
                         "time (µs)");
}

}  // namespace

absl::StatusOr<std::string> CostTable(const PlanRequest& request, const CostModel& model) {
  std::string table = Heading(model);
  const absl::StatusOr<Collective> collective = ParseCollective(request.spec);
  if (!collective.ok()) {
    const absl::StatusOr<std::string> row = Row(request, model);
    if (!row.ok()) return row.status();
    return table + *row;
  }
  for (const Schedule* schedule : AllSchedules()) {
    if (schedule->collective != *collective) continue;
    PlanRequest one = request;
    one.spec = absl::StrCat(Name(*collective), ":", schedule->name);
    const absl::StatusOr<std::string> row = Row(one, model);
    absl::StrAppend(&table, row.ok() ? *row : absl::StrFormat("%-32s %s\n", one.spec, row.status().message()));
  }
  return table;
}

}  // namespace tutti::cli
