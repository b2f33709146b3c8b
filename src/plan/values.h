// The check of the values that plans compute.
#ifndef TUTTI_PLAN_VALUES_H_
#define TUTTI_PLAN_VALUES_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "plan/order.h"

namespace tutti {

// Runs race-free plans on symbols; FailedPrecondition names the step or the rank and range whose value is not what the
// collective promises. `plans` are those of `order`. `done` is told the part of the check that is done, from 0 on.
absl::Status CheckValues(absl::Span<const Plan> plans, const Order& order, absl::FunctionRef<void(double)> done);

}  // namespace tutti

#endif  // TUTTI_PLAN_VALUES_H_
