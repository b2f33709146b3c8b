// The check that accesses to the same memory are ordered.
#ifndef TUTTI_PLAN_RACES_H_
#define TUTTI_PLAN_RACES_H_

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "plan/order.h"

namespace tutti {

// FailedPrecondition names two steps that may touch the same bytes at the same time, or a step that touches a
// peer's memory while that peer may not be in the call. `plans` are those of `order`.
absl::Status CheckRaces(absl::Span<const Plan> plans, const Order& order);

}  // namespace tutti

#endif  // TUTTI_PLAN_RACES_H_
