// What `tutti plan` was asked for, and the plans that answer it.
#ifndef TUTTI_BINDINGS_CLI_PLAN_REQUEST_H_
#define TUTTI_BINDINGS_CLI_PLAN_REQUEST_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bindings/cli/traffic.h"
#include "tutti/plan.h"
#include "tutti/plan_builder.h"

namespace tutti::cli {

struct PlanRequest {
  // "all_reduce:ring", "all_reduce" (what the selector would choose) or a strategy name, "bytegrad:block=512".
  std::string spec;
  int ranks = 2;
  std::int64_t bytes = std::int64_t{1} << 20;
  std::int64_t count = -1;  // elements, in place of bytes
  std::int64_t step = 0;    // the optimizer step; an algorithm may have several plans
  TrafficOptions traffic;
  std::vector<std::string> for_collectives;  // names of the given flags that mean nothing to a strategy
  bool step_given = false;                   // whether the user has given `step`, which means nothing to a collective
  PlanOptions options = {.segment_bytes = 256 << 10, .peers_mapped = true};
};

struct PlanFamily {
  std::string explanation;  // which schedule was chosen and why; empty when it was named
  std::string choice;       // the same in one line, also when it was named
  int ranks = 0;            // ranks that take part: two for send and recv, otherwise all
  std::function<absl::StatusOr<Plan>(Rank rank)> build;
};

// The plans that answer `request`. InvalidArgument or NotFound names what is wrong and what would be right.
absl::StatusOr<PlanFamily> Resolve(const PlanRequest& request);

// The plans of all ranks that take part.
absl::StatusOr<std::vector<Plan>> BuildAll(const PlanFamily& family);

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_PLAN_REQUEST_H_
