// The check that accesses to the same memory are ordered.
#ifndef TUTTI_PLAN_RACES_H_
#define TUTTI_PLAN_RACES_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "plan/order.h"

namespace tutti {

// FailedPrecondition names two steps that may touch the same bytes at the same time, or a step that touches a peer's
// memory while that peer may not be in the call. `plans` are those of `order`. `done` is told the part of the check
// that is done, from 0 on.
absl::Status CheckRaces(absl::Span<const Plan> plans, const Order& order, absl::FunctionRef<void(double)> done);

}  // namespace tutti

#endif  // TUTTI_PLAN_RACES_H_
