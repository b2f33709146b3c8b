#include "tutti/cost.h"

#include <algorithm>

#include "plan/form.h"
#include "plan/order.h"
#include "plan/player.h"

namespace tutti {

absl::StatusOr<Cost> CostOf(absl::Span<const Plan> plans, const CostModel& model, absl::Span<const int> nodes) {
  if (absl::Status status = CheckForm(plans); !status.ok()) return status;
  if (absl::Status status = CheckNodes(plans, nodes); !status.ok()) return status;
  if (absl::Status status = Order::Of(plans).status(); !status.ok()) return status;
  Cost cost;
  for (const Plan& plan : plans) {
    std::int64_t messages = 0;
    std::int64_t memory = 0;
    for (const Step& step : plan.steps) {
      messages += step.kind == StepKind::kSend;
      if (Computes(step)) memory += TouchedBytes(plan, step);
    }
    cost.steps = std::max(cost.steps, static_cast<std::int64_t>(plan.steps.size()));
    cost.messages = std::max(cost.messages, messages);
    cost.wire_bytes = std::max(cost.wire_bytes, WireBytes(plan));
    cost.memory_bytes = std::max(cost.memory_bytes, memory);
  }
  cost.seconds = Play(plans, nodes, model);
  if (absl::Status known = CheckPredicted(cost.seconds); !known.ok()) return known;
  return cost;
}

}  // namespace tutti
