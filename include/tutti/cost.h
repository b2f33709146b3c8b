// The cost of plans on a machine that a few numbers describe, computed without running them.
#ifndef TUTTI_COST_H_
#define TUTTI_COST_H_

#include <cstdint>
#include <vector>

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
// CostModel::ranks_per_node. Errors are those of Verify, whose form, matching and progress must hold; InvalidArgument
// also where `nodes` has not the nodes of all ranks, and FailedPrecondition where the plans have native steps of whose
// time the model says nothing.
absl::StatusOr<Cost> CostOf(absl::Span<const Plan> plans, const CostModel& model, absl::Span<const int> nodes = {});

// When one step happens in that simulation, in seconds from the common start.
struct StepTime {
  double begin = 0;   // when the rank begins to work on the step; of a Wait when the signal is seen
  double worked = 0;  // when the rank goes on to another step; of a native step when its collective ends
  double end = 0;     // when the step has ended: a Send may end later than the rank's work on the Send
  // A Recv or Wait waits for a Send or Signal: the index of its plan in `plans`, its step, and when the message or
  // signal leaves. source_plan is -1 of other steps, and when no plan of the peer was given.
  int source_plan = -1;
  StepId source_step = 0;
  double left = 0;
};

// The times of the steps of each plan: the simulation of CostOf, without the checks of the plans, which must be those
// that BuildPlan makes. `plans` may be those of some ranks only, each once. A peer without a plan is then taken to do
// what the rank that waits for the peer does itself at that point, as in PredictSeconds. InvalidArgument where `nodes`
// has not the nodes of all ranks of the world; FailedPrecondition where the plans have native steps of whose time the
// model says nothing.
absl::StatusOr<std::vector<std::vector<StepTime>>> TimesOf(absl::Span<const Plan> plans, const CostModel& model,
                                                           absl::Span<const int> nodes = {});

}  // namespace tutti

#endif  // TUTTI_COST_H_
