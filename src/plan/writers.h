// The schedules behind the plan of an algorithm, in errors: a schedule's mistake must not look like the algorithm's.
#ifndef TUTTI_PLAN_WRITERS_H_
#define TUTTI_PLAN_WRITERS_H_

#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tutti/plan.h"

namespace tutti {

// " (written by schedule all_reduce:ring)"; empty where the plan's name says who has written the step.
inline std::string WriterOf(const Plan& plan, StepId step) {
  const absl::string_view schedule = plan.schedule_of(step);
  return schedule.empty() ? "" : absl::StrCat(" (written by schedule ", schedule, ")");
}

// " (in parts written by schedule all_reduce:ring)", with all schedules that have written parts of `plans`; empty where
// none has.
inline std::string WritersOf(absl::Span<const Plan> plans) {
  std::set<absl::string_view> schedules;
  for (const Plan& plan : plans) {
    for (const PlanPart& part : plan.parts) schedules.insert(part.schedule);
  }
  return schedules.empty() ? "" : absl::StrCat(" (in parts written by schedule ", absl::StrJoin(schedules, ", "), ")");
}

}  // namespace tutti

#endif  // TUTTI_PLAN_WRITERS_H_
