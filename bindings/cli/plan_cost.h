// What plans would cost on a machine described by a few numbers, as a table.
#ifndef TUTTI_BINDINGS_CLI_PLAN_COST_H_
#define TUTTI_BINDINGS_CLI_PLAN_COST_H_

#include <string>

#include "absl/status/statusor.h"
#include "bindings/cli/plan_request.h"
#include "tutti/cost_model.h"

namespace tutti::cli {

// One row for the plan of `request` or, when it names a collective alone, one for each schedule that serves the call.
absl::StatusOr<std::string> CostTable(const PlanRequest& request, const CostModel& model);

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_PLAN_COST_H_
