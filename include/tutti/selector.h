// The selector: which schedule serves a call when the caller names none.
#ifndef TUTTI_SELECTOR_H_
#define TUTTI_SELECTOR_H_

#include <string>

#include "absl/status/statusor.h"
#include "tutti/schedule.h"

namespace tutti {

struct Selection {
  const Schedule* schedule = nullptr;
  std::string reason;  // one line per schedule that was considered
};

// Chooses by its arguments alone, so that all ranks choose alike. Unimplemented, with the reason of every schedule,
// when no schedule serves the call.
absl::StatusOr<Selection> SelectSchedule(const CollectiveSpec& spec, int size, const PlanOptions& options);

// Writes the call of `builder` with the schedule that SelectSchedule chooses; some schedule must serve the call.
void BuildSelected(PlanBuilder& builder);

}  // namespace tutti

#endif  // TUTTI_SELECTOR_H_
