// The meetings of plans: native steps of several ranks that are one collective.
#ifndef TUTTI_PLAN_MEETINGS_H_
#define TUTTI_PLAN_MEETINGS_H_

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "tutti/plan.h"

namespace tutti {

// A step, by the index of its plan among the given plans.
struct PlanStep {
  std::size_t plan = 0;
  StepId step = 0;
};

// The native steps with one number in one group, in the order of the plans: at most one of each plan.
struct Meeting {
  std::vector<PlanStep> steps;
};

// All meetings of `plans`, which may be those of some ranks only.
std::vector<Meeting> MeetingsOf(absl::Span<const Plan> plans);

// FailedPrecondition, which names a rank and a step, when a rank of the group has no step in the meeting, or when two
// of the steps are not the same call. `plans`, of all ranks, are well formed.
absl::Status CheckMeeting(absl::Span<const Plan> plans, const Meeting& meeting);

// The groups that native steps of `plans` name, each once, in the order of the plans and their steps, without that of
// all ranks. A rank that makes what it needs for its groups in this order meets the others: the plans are those of all
// ranks, so that the order is the same everywhere.
std::vector<std::vector<Rank>> GroupsOf(absl::Span<const Plan> plans);

}  // namespace tutti

#endif  // TUTTI_PLAN_MEETINGS_H_
