// Schedules: how a collective moves bytes. One file defines one schedule.
#ifndef TUTTI_SCHEDULE_H_
#define TUTTI_SCHEDULE_H_

#include <map>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tutti/collective.h"
#include "tutti/plan.h"
#include "tutti/plan_builder.h"

namespace tutti {

struct Schedule {
  Collective collective;
  absl::string_view name;     // "ring": the file's name
  absl::string_view summary;  // one line: how it works
  absl::string_view cost;     // steps and bytes per rank as a formula, for the docs
  // OK, or the reason why this schedule cannot serve a call; equal on all ranks.
  absl::Status (*supports)(const CollectiveSpec& spec, int size, const PlanOptions& options);
  // Writes the steps of builder.rank(); `supports` holds.
  void (*build)(PlanBuilder& builder);
  // True when ranks touch no memory of their peers but scratch, so that the caller's buffers may lie where peers cannot
  // map them.
  bool touches_only_scratch_of_peers = false;
  // True when all ranks meet, each by a signal and waits for all others, before they touch the inputs of their peers,
  // and do no more in the memory of peers than copy from inputs and scratch, without a change of the dtype. In a
  // collective that reduces nothing, inputs that peers cannot map are then read from the process in which they lie,
  // where PlanOptions::reads_processes.
  bool only_copies_from_peers = false;
  // False for a schedule that serves buffers which peers cannot map, and does not compete for others.
  bool competes_for_mapped_buffers = true;
  // Null, or OK where the schedule may be chosen by its predicted time, and otherwise the reason; equal on all ranks. A
  // call that names the schedule may use it all the same.
  absl::Status (*competes)(const CollectiveSpec& spec, int size, const PlanOptions& options) = nullptr;
};

// Stands, in CallOptions::schedule, for the schedule that the selector chooses, also where
// CommunicatorOptions::schedules names another one. Calls that Tutti makes for itself are served so. It makes no plans
// itself.
extern const Schedule kSelectorsChoice;

// `supports` of a schedule that can do everything its collective can.
absl::Status SupportsAll(const CollectiveSpec& spec, int size, const PlanOptions& options);
// `supports` of a schedule that reads and writes mapped memory of its peers.
absl::Status SupportsMappedPeers(const CollectiveSpec& spec, int size, const PlanOptions& options);

// Every schedule of this process, those of extensions (extension.h) too, by collective, then name. What is returned
// stays valid.
absl::Span<const Schedule* const> AllSchedules();
// NotFound lists the names that exist for the collective.
absl::StatusOr<const Schedule*> FindSchedule(Collective collective, absl::string_view name);

// The schedules that `text`, such as "all_reduce=ring,broadcast=binomial", names: the form of TUTTI_SCHEDULE and
// CommunicatorOptions::schedules. InvalidArgument or NotFound names the part of the text that is wrong, and what would
// be right.
absl::StatusOr<std::map<Collective, const Schedule*>> ParseSchedules(absl::string_view text);

// The plan of one rank. InvalidArgument or Unimplemented with the reason when the schedule does not serve the spec;
// InvalidArgument, too, when the plan keeps state, promises a mix, or breaks `touches_only_scratch_of_peers` or
// `only_copies_from_peers`.
absl::StatusOr<Plan> BuildPlan(const Schedule& schedule, const CollectiveSpec& spec, Rank rank, int size,
                               const PlanOptions& options);

// Writes the call of `builder`, a part of the plan of an algorithm, by the schedule, whose `supports` holds. Errors
// about these steps name the schedule. See BuildSelected (selector.h) for the schedule that is predicted to be the
// fastest.
void BuildPart(const Schedule& schedule, PlanBuilder& builder);

}  // namespace tutti

// Defines the schedule of the file <name>.cc: TUTTI_SCHEDULE(all_gather, name) = {.name = "name", …}; in Tutti's tree
// the file lies in algorithms/schedules/<collective>, elsewhere it is given to tutti_add_extensions (extension.h).
#define TUTTI_SCHEDULE(collective, name)                               \
  extern const ::tutti::Schedule tutti_schedule_##collective##_##name; \
  constinit const ::tutti::Schedule tutti_schedule_##collective##_##name

#endif  // TUTTI_SCHEDULE_H_
