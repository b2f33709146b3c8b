// Calls of every collective in worlds of any size, and the plans of all their ranks.
#ifndef TUTTI_TESTS_HARNESS_CALLS_H_
#define TUTTI_TESTS_HARNESS_CALLS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tutti/schedule.h"

namespace tutti {

// One call: what each rank that takes part says.
struct Call {
  std::vector<Rank> ranks;
  std::vector<CollectiveSpec> specs;
  std::string text() const;
};

// The calls of a collective worth trying with `count` elements: all roots that differ, in place and not, with the
// given dtype and op.
std::vector<Call> CallsOf(Collective collective, DType dtype, ReduceOp op, std::int64_t count, int size);

// One plan per rank of the call. The receiver of a send (the sender of a recv) uses the schedule of that name.
absl::StatusOr<std::vector<Plan>> PlansOf(const Schedule& schedule, const Call& call, int size,
                                          const PlanOptions& options);

}  // namespace tutti

#endif  // TUTTI_TESTS_HARNESS_CALLS_H_
