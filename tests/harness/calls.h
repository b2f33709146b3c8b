// Calls of every collective in worlds of any size, and the plans of all their ranks.
#ifndef TUTTI_TESTS_HARNESS_CALLS_H_
#define TUTTI_TESTS_HARNESS_CALLS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tutti/schedule.h"

namespace tutti {

// One call: the spec that each participating rank gives.
struct WorldCall {
  std::vector<Rank> ranks;
  std::vector<CollectiveSpec> specs;
  std::string text() const;
};

// The calls of a collective with `count` elements, `dtype` and `op`: with all roots that matter, in place and not.
std::vector<WorldCall> CallsOf(Collective collective, DType dtype, ReduceOp op, std::int64_t count, int size);

// The nodes of the ranks (PlanOptions::nodes) of the worlds of `size` ranks that `schedule` is for: one node, or, where
// the schedule refuses that, every split into several nodes of equally many ranks, in order and by turns; for some
// sizes there is none.
std::vector<std::vector<int>> NodesFor(const Schedule& schedule, int size);

// One plan per rank of the call. The receiver of a send (or sender of a recv) uses the schedule of the same name.
absl::StatusOr<std::vector<Plan>> PlansOf(const Schedule& schedule, const WorldCall& call, int size,
                                          const PlanOptions& options);

}  // namespace tutti

#endif  // TUTTI_TESTS_HARNESS_CALLS_H_
