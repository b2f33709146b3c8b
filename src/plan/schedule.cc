#include "tutti/schedule.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "plan/registry.h"
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
    schedules[*collective] = *schedule;
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
  // Peers do not learn where private buffers lie.
  if (plan.ok() && schedule.touches_only_scratch_of_peers) {
    const auto wrong = std::find_if(plan->refs.begin(), plan->refs.end(),
                                    [](const Ref& ref) { return ref.owner != kSelf && ref.space != Space::kScratch; });
    if (wrong != plan->refs.end()) {
      return absl::InvalidArgumentError(absl::StrCat("schedule ", name, " touches ", ToText(*wrong),
                                                     " in the plan of rank ", rank,
                                                     ", but touches_only_scratch_of_peers is true"));
    }
  }
  return plan;
}

void BuildPart(const Schedule& schedule, PlanBuilder& builder) {
  builder.WriteBy(internal::FullName(schedule), schedule.build);
}

}  // namespace tutti
