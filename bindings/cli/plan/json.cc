#include "bindings/cli/plan/json.h"

#include <vector>

#include "nlohmann/json.hpp"
#include "tutti/print.h"

namespace tutti::cli {
namespace {

using Json = nlohmann::ordered_json;

Json StepsOf(const Plan& plan) {
  Json steps = Json::array();
  for (const Step& step : plan.steps) {
    const absl::Span<const StepId> deps = plan.deps_of(step);
    steps.push_back({{"number", steps.size()},
                     {"kind", std::string(Name(step.kind))},
                     {"text", ToText(plan, step)},
                     {"after", std::vector<StepId>(deps.begin(), deps.end())}});
  }
  return steps;
}

Json RowOf(const PlanCost& cost) {
  if (!cost.cost.ok()) return {{"spec", cost.spec}, {"refused", std::string(cost.cost.status().message())}};
  return {{"spec", cost.spec},
          {"steps", cost.cost->steps},
          {"messages", cost.cost->messages},
          {"wire_bytes", cost.cost->wire_bytes},
          {"memory_bytes", cost.cost->memory_bytes},
          {"seconds", cost.cost->seconds}};
}

}  // namespace

std::string JsonOf(const PlanFamily& family, const Plan& plan, absl::Span<const PlanCost> costs, bool verified) {
  Json json = {{"plan", plan.name},
               {"by", family.choice},
               {"rank", plan.rank},
               {"ranks", family.ranks},
               {"call", ToString(plan.spec)},
               {"in_bytes", plan.in_bytes},
               {"out_bytes", plan.out_bytes},
               {"scratch_bytes", plan.scratch_bytes},
               {"state_bytes", plan.state_bytes},
               {"wire_bytes", WireBytes(plan)},
               {"steps", StepsOf(plan)}};
  for (const PlanCost& cost : costs) json["costs"].push_back(RowOf(cost));
  if (verified) json["verified"] = true;
  return json.dump(1) + "\n";
}

}  // namespace tutti::cli
