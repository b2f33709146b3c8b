// The selector: which schedule serves a call when the caller names none. The selector takes the schedule whose plans
// are predicted to take the least time on the machine that PlanOptions::cost_model describes; docs/selection.md says
// how.
#ifndef TUTTI_SELECTOR_H_
#define TUTTI_SELECTOR_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tutti/schedule.h"

namespace tutti {

// A schedule of the call's collective.
struct Candidate {
  const Schedule* schedule = nullptr;
  absl::Status refusal;  // the reason why the schedule cannot serve the call, or does not compete for it, or OK
  double seconds = 0;  // predicted, from when all ranks make the call until the last one has its result; if not refused
  bool serves = true;  // where the call names the schedule; the schedule may not compete all the same
};

struct Selection {
  const Schedule* schedule = nullptr;
  std::vector<Candidate> candidates;  // the fastest first; then those that do not compete or cannot serve

  // One line per candidate: "ring: predicted 12.30 µs, 2(n-1) steps, …", "one_shot: does not compete, …" or "direct:
  // refused, …".
  std::string reason() const;
};

// SelectSchedule and ChooseSchedule choose by their arguments alone, so that all ranks choose alike; of two schedules
// that are predicted to take equal times, both functions take the schedule whose name comes first. Unimplemented, with
// the reason of every schedule, when no schedule serves the call. ChooseSchedule remembers the choices that its thread
// made last, and predicts nothing when there is nothing to choose.
absl::StatusOr<Selection> SelectSchedule(const CollectiveSpec& spec, int size, const PlanOptions& options);
absl::StatusOr<const Schedule*> ChooseSchedule(const CollectiveSpec& spec, int size, const PlanOptions& options);

// Whether a call by `schedule` whose buffers lie in memory that peers cannot map reads these where they lie: the
// collective reduces nothing, the schedule only copies from peers, whose processes can be read, and 32 KiB or more at
// once; where ranks outnumber the processors of the node, 1 MiB, but for a scatter, and no broadcast. The lengths of an
// all_to_all_v, which no rank knows, do not count. A broadcast of more than 4 ranks reads none.
bool ReadsProcesses(const Schedule& schedule, const CollectiveSpec& spec, int size, const PlanOptions& options);

// The schedule for a call whose buffers lie in memory that peers cannot map, where `chosen` serves the same call with
// mapped buffers. Both begin with the same steps, in which all ranks meet, or are one schedule. Returns the fastest
// schedule with ReadsProcesses if there is one; else the fastest schedule that touches only scratch of peers, if that
// is predicted to take less time than `chosen` with a copy of all buffers on the way in and out; otherwise, and for
// buffers of up to two segments, `chosen`. In an all_to_all_v, whose lengths no rank knows, copies are not predicted:
// the fastest such schedule is returned if there is one.
absl::StatusOr<const Schedule*> ChooseForPrivateBuffers(const Schedule& chosen, const CollectiveSpec& spec, int size,
                                                        const PlanOptions& options);

// Whether the schedule that ChooseSchedule chooses hands the call to the native transport.
bool IsNativeChosen(const CollectiveSpec& spec, int size, const PlanOptions& options);

// OK when some schedule serves the call; otherwise the error of SelectSchedule.
absl::Status CheckServed(const CollectiveSpec& spec, int size, const PlanOptions& options);

// The seconds that the call is predicted to take with `schedule`, as in Candidate; a pure function. The work of a
// prediction has a bound: long buffers are cut into few segments, and in large worlds the plans of some ranks stand for
// those of all. For all_to_all_v, of which no rank knows all counts, the blocks are taken to be equal. For send and
// recv one end is predicted. Errors are those of BuildPlan; FailedPrecondition where the plans have native steps of
// whose time the model says nothing, so that such a schedule is never chosen where another one serves.
absl::StatusOr<double> PredictSeconds(const Schedule& schedule, const CollectiveSpec& spec, int size,
                                      const PlanOptions& options);

// Writes the call of `builder` with the schedule that ChooseSchedule chooses, or, where builder.options() say that
// buffers are private, ChooseForPrivateBuffers; some schedule must serve the call.
void BuildSelected(PlanBuilder& builder);

}  // namespace tutti

#endif  // TUTTI_SELECTOR_H_
