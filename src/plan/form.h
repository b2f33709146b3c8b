// The check that plans are well formed, before other checks rely on the form.
#ifndef TUTTI_PLAN_FORM_H_
#define TUTTI_PLAN_FORM_H_

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "tutti/plan.h"

namespace tutti {

// InvalidArgument when `plans` is not one plan per rank of one call, FailedPrecondition when a step is malformed.
absl::Status CheckForm(absl::Span<const Plan> plans);

}  // namespace tutti

#endif  // TUTTI_PLAN_FORM_H_
