// A plan for programs.
#ifndef TUTTI_BINDINGS_CLI_PLAN_JSON_H_
#define TUTTI_BINDINGS_CLI_PLAN_JSON_H_

#include <string>

#include "absl/types/span.h"
#include "bindings/cli/plan/cost.h"
#include "bindings/cli/plan/request.h"
#include "tutti/plan.h"

namespace tutti::cli {

// One JSON object with what `tutti plan` prints: the plan of one rank, which schedule or strategy it is of, the costs
// when there are any, and whether the plans of all ranks were verified.
std::string JsonOf(const PlanFamily& family, const Plan& plan, absl::Span<const PlanCost> costs, bool verified);

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_PLAN_JSON_H_
