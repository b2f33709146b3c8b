// The cost of plans on a machine that a few numbers describe, computed without running them.
#ifndef TUTTI_COST_H_
#define TUTTI_COST_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tutti/cost_model.h"
#include "tutti/plan.h"

namespace tutti {

struct Cost {
  std::int64_t steps = 0;         // steps of the rank with the most steps
  std::int64_t messages = 0;      // messages sent by the rank that sends most
  std::int64_t wire_bytes = 0;    // bytes moved by the rank that moves most (see WireBytes)
  std::int64_t memory_bytes = 0;  // bytes that the computing steps of the busiest rank read and write
  double seconds = 0;             // time from the common start until the last rank ends
};

// Simulates the plans of all ranks (given as for Verify) on the model; a step starts as soon as its dependencies, its
// message or its signal is there. `nodes` is the node of each rank, as in PlanOptions; empty: see
// CostModel::ranks_per_node. Errors are those of Verify, whose form, matching and progress must hold;
// FailedPrecondition also where the plans have native steps of whose time the model says nothing.
absl::StatusOr<Cost> CostOf(absl::Span<const Plan> plans, const CostModel& model, absl::Span<const int> nodes = {});

}  // namespace tutti

#endif  // TUTTI_COST_H_
