#include "tutti/schedule.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "plan/registry.h"
#include "plan/shared_beginning.h"
#include "tutti/print.h"

namespace tutti {

absl::Status SupportsAll(const CollectiveSpec& /*spec*/, int /*size*/, const PlanOptions& /*options*/) {
  return absl::OkStatus();
}

absl::Status SupportsMappedPeers(const CollectiveSpec& /*spec*/, int /*size*/, const PlanOptions& options) {
  if (options.all_mapped()) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat("the schedule reads and writes peers' memory, which is not mapped ",
                                               options.peers_mapped ? "between nodes" : "on this transport"));
}

namespace {

// Writes a premultiplied sum: every rank multiplies its own elements, and `schedule` sums the products. The products of
// an all_reduce lie in the output, those of other collectives in scratch, because only some ranks have an output as
// long as their input, and the input keeps its value.
void BuildPremulSum(PlanBuilder& b, const Schedule& schedule) {
  CollectiveSpec sum = b.spec();
  sum.op = ReduceOp::kSum;
  sum.in_place = sum.collective == Collective::kAllReduce;
  const Ref products = sum.in_place ? b.out() : b.Scratch(sum.dtype, b.in().count());
  b.ScaleByFactor(products, b.in());
  b.Within(sum, products, b.out(), schedule.build);
}

// OK where `plan`, by `schedule`, does in the memory of peers what the fields of `schedule` say.
absl::Status CheckTouchesOfPeers(const Schedule& schedule, const Plan& plan) {
  const auto error = [&](const Ref& ref, absl::string_view does, absl::string_view field) {
    return absl::InvalidArgumentError(absl::StrCat("schedule ", internal::FullName(schedule), " ", does, " ",
                                                   ToText(ref), " in the plan of rank ", plan.rank, ", but ", field,
                                                   " is true"));
  };
  const auto is_of_peer = [](const Ref& ref) { return ref.owner != kSelf; };
  if (schedule.touches_only_scratch_of_peers) {
    const auto wrong = std::find_if(plan.refs.begin(), plan.refs.end(),
                                    [&](const Ref& ref) { return is_of_peer(ref) && ref.space != Space::kScratch; });
    if (wrong != plan.refs.end()) return error(*wrong, "touches", "touches_only_scratch_of_peers");
  }
  if (!schedule.only_copies_from_peers || !plan.maps_peers()) return absl::OkStatus();
  if (SharedBeginningOfReader(plan, plan) == 0) {
    return absl::InvalidArgumentError(absl::StrCat("schedule ", internal::FullName(schedule), " does not begin with a ",
                                                   "meeting of all ranks in the plan of rank ", plan.rank,
                                                   ", but only_copies_from_peers is true"));
  }
  for (const Step& step : plan.steps) {
    const absl::Span<const Ref> dsts = plan.dsts(step);
    const absl::Span<const Ref> srcs = plan.srcs(step);
    for (const absl::Span<const Ref> refs : {dsts, srcs}) {
      const auto ref = std::find_if(refs.begin(), refs.end(), is_of_peer);
      if (ref == refs.end()) continue;
      const bool copies = step.kind == StepKind::kCopy && refs.data() == srcs.data() && dsts.size() == 1 &&
                          dsts[0].dtype == srcs[0].dtype;
      if (!copies) return error(*ref, "does not only copy from", "only_copies_from_peers");
      // A rank tells one place of its private buffers: that of its input, which in place is in the output.
      if (ref->space == Space::kOut && !plan.spec.in_place) return error(*ref, "reads", "only_copies_from_peers");
    }
  }
  return absl::OkStatus();
}

}  // namespace

constinit const Schedule kSelectorsChoice = {
    .collective = Collective::kAllReduce,
    .name = "selectors_choice",
    .summary = "the schedule that the selector chooses",
    .cost = "",
    .supports =
        [](const CollectiveSpec&, int, const PlanOptions&) {
          return absl::InvalidArgumentError(
              "kSelectorsChoice is for CallOptions::schedule alone: ChooseSchedule chooses");
        },
    .build = [](PlanBuilder&) {},
};

absl::StatusOr<const Schedule*> FindSchedule(Collective collective, absl::string_view name) {
  std::vector<absl::string_view> valid;
  for (const Schedule* schedule : AllSchedules()) {
    if (schedule->collective != collective) continue;
    if (schedule->name == name) return schedule;
    valid.push_back(schedule->name);
  }
  return absl::NotFoundError(absl::StrCat("unknown schedule '", name, "' of ", Name(collective),
                                          "; valid: ", absl::StrJoin(valid, ", "), MissingExtension()));
}

absl::StatusOr<std::map<Collective, const Schedule*>> ParseSchedules(absl::string_view text) {
  std::map<Collective, const Schedule*> schedules;
  for (absl::string_view entry : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    if (!absl::StrContains(entry, '=')) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", entry, "' is not of the form COLLECTIVE=SCHEDULE, such as all_reduce=ring"));
    }
    const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(entry, absl::MaxSplits('=', 1));
    absl::StatusOr<Collective> collective = ParseCollective(parts.first);
    if (!collective.ok()) return collective.status();
    absl::StatusOr<const Schedule*> schedule = FindSchedule(*collective, parts.second);
    if (!schedule.ok()) return schedule.status();
    if (!schedules.emplace(*collective, *schedule).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", entry, "' is the second schedule of ", parts.first, ", must be the only one"));
    }
  }
  return schedules;
}

absl::StatusOr<Plan> BuildPlan(const Schedule& schedule, const CollectiveSpec& spec, Rank rank, int size,
                               const PlanOptions& options) {
  const std::string name = internal::FullName(schedule);
  if (spec.collective != schedule.collective) {
    return absl::InvalidArgumentError(
        absl::StrCat("collective ", Name(spec.collective), " cannot be served by schedule ", name));
  }
  if (absl::Status status = Validate(spec, rank, size); !status.ok()) return status;
  if (absl::Status status = options.Check(size); !status.ok()) return status;
  if (absl::Status status = schedule.supports(spec, size, options); !status.ok()) {
    return absl::Status(status.code(), absl::StrCat("schedule ", name, ": ", status.message()));
  }
  PlanBuilder builder(name, spec, rank, size, options);
  if (Reduces(spec.collective) && spec.op == ReduceOp::kPremulSum) {
    BuildPremulSum(builder, schedule);
  } else {
    schedule.build(builder);
  }
  absl::StatusOr<Plan> plan = std::move(builder).Build();
  // Calls have no memory for state, and are verified for the promise of their collective.
  if (plan.ok() && (!plan->states.empty() || !plan->mixing.empty())) {
    return absl::InvalidArgumentError(
        absl::StrCat("schedule ", name, " ", plan->mixing.empty() ? "keeps state" : "promises a mix",
                     " (PlanBuilder::Residual, Replica, PromiseMixing), which only algorithms may"));
  }
  if (!plan.ok()) return plan;
  if (absl::Status status = CheckTouchesOfPeers(schedule, *plan); !status.ok()) return status;
  return plan;
}

void BuildPart(const Schedule& schedule, PlanBuilder& builder) {
  builder.WriteBy(internal::FullName(schedule), schedule.build);
}

}  // namespace tutti
