// Questions about the plans of all ranks whose answers a rank needs to run its own plan.
#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "comm/communicator_impl.h"

namespace tutti {
namespace {

// A rank on another node whose memory or signals the plan uses; nullopt: there is none. Refs that no step uses may name
// ranks that do not exist, which are on no node.
std::optional<Rank> MapsOnAnotherNode(const Plan& plan, const std::vector<int>& nodes) {
  const auto is_far = [&](Rank rank) {
    if (rank < 0 || rank >= plan.size) return false;
    return nodes[static_cast<std::size_t>(rank)] != nodes[static_cast<std::size_t>(plan.rank)];
  };
  for (const Ref& ref : plan.refs) {
    if (is_far(ref.owner)) return ref.owner;
  }
  for (const Step& step : plan.steps) {
    if (step.kind == StepKind::kWait && is_far(step.peer)) return step.peer;
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<bool> Communicator::Impl::SharesOnlyScratch(const Plan& own, PlanOfRank plan_of) const {
  if (!own.maps_peers()) return true;
  const auto touches_buffers = [&](const Plan& plan, Rank of) {
    return std::any_of(plan.refs.begin(), plan.refs.end(), [&](const Ref& ref) {
      return ref.owner != kSelf && (ref.owner == of || of == kSelf) && ref.space != Space::kScratch;
    });
  };
  if (touches_buffers(own, kSelf)) return false;
  const std::vector<int>& nodes = plan_options.nodes;
  for (Rank rank = 0; rank < own.size; ++rank) {
    if (rank == own.rank || (!nodes.empty() && nodes[rank] != nodes[own.rank])) continue;
    const absl::StatusOr<Plan> plan = plan_of(rank);
    if (!plan.ok()) return plan.status();
    if (touches_buffers(*plan, own.rank)) return false;
  }
  return true;
}

absl::Status Communicator::Impl::CheckNodes(const Plan& own, PlanOfRank plan_of) const {
  if (plan_options.one_node() || IsPointToPoint(own.spec.collective)) return absl::OkStatus();
  for (Rank rank = 0; rank < channel->size(); ++rank) {
    const absl::StatusOr<Plan> plan = plan_of(rank);
    if (!plan.ok()) return plan.status();
    if (const std::optional<Rank> far = MapsOnAnotherNode(*plan, plan_options.nodes); far.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat("plan ", plan->name, " of rank ", rank,
                                                     " maps the memory of rank ", *far, ", which is on another node"));
    }
  }
  return absl::OkStatus();
}

}  // namespace tutti
