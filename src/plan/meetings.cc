#include "plan/meetings.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "tutti/native.h"
#include "tutti/print.h"

namespace tutti {

std::vector<Meeting> MeetingsOf(absl::Span<const Plan> plans) {
  std::vector<Meeting> meetings;
  using Key = std::pair<std::vector<Rank>, std::uint32_t>;  // the group, empty for all ranks, and the ordinal
  absl::flat_hash_map<Key, std::size_t> known;
  for (std::size_t p = 0; p < plans.size(); ++p) {
    const Plan& plan = plans[p];
    for (StepId id = 0; id < plan.steps.size(); ++id) {
      const Step& step = plan.steps[id];
      if (step.kind != StepKind::kNative) continue;
      const absl::Span<const Rank> group = plan.group_of(step);
      const auto [found, added] = known.try_emplace(Key({group.begin(), group.end()}, step.ordinal), meetings.size());
      if (added) meetings.emplace_back();
      meetings[found->second].steps.push_back({p, id});
    }
  }
  return meetings;
}

std::vector<std::vector<Rank>> GroupsOf(absl::Span<const Plan> plans) {
  std::vector<std::vector<Rank>> groups;
  absl::flat_hash_set<std::vector<Rank>> known;
  for (const Plan& plan : plans) {
    for (const std::vector<Rank>& group : plan.groups) {
      if (known.insert(group).second) groups.push_back(group);
    }
  }
  return groups;
}

absl::Status CheckMeeting(absl::Span<const Plan> plans, const Meeting& meeting) {
  const Plan& first_plan = plans[meeting.steps[0].plan];
  const Step& first = first_plan.steps[meeting.steps[0].step];
  const auto describe = [&](const PlanStep& at) {
    const Plan& plan = plans[at.plan];
    return absl::StrCat("rank ", plan.rank, " step ", at.step, " (", ToText(plan, plan.steps[at.step]), ")");
  };
  std::vector<bool> takes_part(static_cast<std::size_t>(first_plan.size));
  for (const PlanStep& at : meeting.steps) takes_part[static_cast<std::size_t>(plans[at.plan].rank)] = true;
  for (Rank rank = 0; rank < first_plan.size; ++rank) {
    if (takes_part[static_cast<std::size_t>(rank)] || NativePlaceOf(first_plan, first, rank) < 0) continue;
    return absl::FailedPreconditionError(absl::StrCat(describe(meeting.steps[0]), ": rank ", rank,
                                                      ", which is in the group, has no native step #", first.ordinal,
                                                      " of this group"));
  }
  const CollectiveSpec expected = NativeSpecOf(first_plan, first);
  for (const PlanStep& at : meeting.steps) {
    const CollectiveSpec found = NativeSpecOf(plans[at.plan], plans[at.plan].steps[at.step]);
    if (found == expected) continue;
    const std::string field = found.collective != expected.collective ? "collective"
                              : found.dtype != expected.dtype         ? "dtype"
                              : found.op != expected.op               ? "op"
                              : found.root != expected.root           ? "root"
                                                                      : "count";
    return absl::FailedPreconditionError(absl::StrCat(describe(at), " differs in ", field, " from ",
                                                      describe(meeting.steps[0]),
                                                      ", which is the same native call of the group"));
  }
  return absl::OkStatus();
}

}  // namespace tutti
