#include "bindings/cli/plan/picture.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bindings/cli/plan/phases.h"
#include "bindings/cli/plan/timeline.h"
#include "bindings/cli/plan/timeline_svg.h"
#include "tutti/verify.h"

namespace tutti::cli {
namespace {

// A schedule looks at every rank of the world when it writes a plan: where only some plans are made, their number times
// the ranks of the world is at most this.
constexpr std::int64_t kMaxLookedAt = 1 << 17;

// The plans of so many ranks at most are verified before they are drawn, which takes seconds.
constexpr int kMaxVerified = 256;

std::int64_t LengthOf(const Plan& plan) { return std::ssize(plan.steps) + std::ssize(plan.refs); }

// The plans of all ranks; where these would be too large together, of as many ranks as there is room for, but not more
// than there are lanes, from `first` on or up to the last one.
absl::StatusOr<std::vector<Plan>> PlansToSimulate(const PlanFamily& family, Rank first) {
  const absl::StatusOr<Plan> one = family.build(first);
  if (!one.ok()) return one.status();
  const std::int64_t room = kMaxSimulated / std::max<std::int64_t>(LengthOf(*one), 1);
  if (family.ranks <= room) return BuildAll(family);
  const std::int64_t looked_at = kMaxLookedAt / family.ranks;
  const auto lanes = static_cast<int>(std::clamp<std::int64_t>(std::min(room, looked_at), 1, kLanesOfMany));
  std::vector<Plan> plans;
  for (Rank rank = std::min(first, family.ranks - lanes); static_cast<int>(plans.size()) < lanes; ++rank) {
    absl::StatusOr<Plan> plan = family.build(rank);
    if (!plan.ok()) return plan.status();
    plans.push_back(*std::move(plan));
  }
  return plans;
}

std::string TitleOf(const PlanRequest& request, const PlanFamily& family, const Plan& plan) {
  const std::int64_t bytes = request.count >= 0 ? request.count * SizeOf(request.traffic.dtype) : request.bytes;
  const bool moves_bytes = plan.spec.collective != Collective::kBarrier;
  const std::vector<int>& nodes = request.options.nodes;
  const std::size_t several = std::set<int>(nodes.begin(), nodes.end()).size();
  return absl::StrCat(
      plan.name, moves_bytes ? absl::StrCat(", ", BytesInWords(bytes), " of ", Name(request.traffic.dtype)) : "", ", ",
      family.ranks, family.ranks == 1 ? " rank" : " ranks", several > 1 ? absl::StrCat(" on ", several, " nodes") : "");
}

std::string TimeInWords(double seconds) {
  if (seconds >= 1) return absl::StrFormat("%.3g s", seconds);
  return seconds >= 1e-3 ? absl::StrFormat("%.3g ms", seconds * 1e3) : absl::StrFormat("%.3g µs", seconds * 1e6);
}

}  // namespace

absl::StatusOr<std::string> PictureOf(const PlanRequest& request, const PlanFamily& family, const CostModel& model,
                                      Rank first, bool caller_verifies) {
  const absl::StatusOr<std::vector<Plan>> plans = PlansToSimulate(family, first);
  if (!plans.ok()) return plans.status();
  const bool verifies = !caller_verifies && family.ranks <= kMaxVerified && std::ssize(*plans) == family.ranks;
  if (verifies) {
    if (absl::Status right = Verify(*plans); !right.ok()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "a plan is wrong, and a timeline of it would be, too (--draw-steps draws wrong plans, step by step): ",
          right.message()));
    }
  }
  const absl::StatusOr<Timeline> timeline = TimelineOf(*plans, model, request.options.nodes, first);
  if (absl::IsFailedPrecondition(timeline.status())) {  // the model says nothing of native collectives
    return absl::FailedPreconditionError(absl::StrCat(
        timeline.status().message(), "; say how fast they are: --native-bandwidth, --node-native-bandwidth"));
  }
  if (!timeline.ok()) return timeline.status();
  std::vector<std::string> notes = {
      absl::StrCat("Predicted to take ", TimeInWords(timeline->seconds), " by ", family.choice, "."),
      absl::StrCat("Assumed: ", ToString(model), ".")};
  if (!verifies && !caller_verifies) notes.emplace_back("Not verified: --verify proves that the plans are right.");
  return SvgOf(*timeline, TitleOf(request, family, plans->front()), notes);
}

}  // namespace tutti::cli
