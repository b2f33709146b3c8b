// The costs of plans on a machine that a few numbers describe.
#ifndef TUTTI_BINDINGS_CLI_PLAN_COST_H_
#define TUTTI_BINDINGS_CLI_PLAN_COST_H_

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "bindings/cli/plan/request.h"
#include "tutti/cost.h"
#include "tutti/cost_model.h"

namespace tutti::cli {

struct PlanCost {
  std::string spec;  // "all_reduce:ring"
  absl::StatusOr<Cost> cost;
};

// The cost of the plan of `request` or, when `request` names a collective alone, of each schedule of the collective, of
// which some may not serve the call. `begins` is called before the plans of a spec are costed, which may take long.
absl::StatusOr<std::vector<PlanCost>> CostsOf(const PlanRequest& request, const CostModel& model,
                                              absl::FunctionRef<void(const std::string& spec)> begins);

std::string CostTable(absl::Span<const PlanCost> costs, const CostModel& model);

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_PLAN_COST_H_
