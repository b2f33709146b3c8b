#include "tutti/verify.h"

#include <algorithm>
#include <vector>

#include "absl/status/statusor.h"
#include "plan/form.h"
#include "plan/order.h"
#include "plan/races.h"
#include "plan/spaces.h"
#include "plan/values.h"

namespace tutti {

absl::Status Verify(absl::Span<const Plan> given, const VerifyProgress& progress) {
  const auto tell = [&](absl::string_view property) {
    return [&progress, property](double part) {
      if (progress) progress(property, part);
    };
  };
  tell("form")(0);
  if (absl::Status status = CheckForm(given); !status.ok()) return status;
  const auto names_block = [](const Plan& plan) {
    return std::any_of(plan.refs.begin(), plan.refs.end(), [](const Ref& ref) { return ref.space == Space::kBlock; });
  };
  const bool has_blocks = given[0].spec.collective == Collective::kAllToAllV;
  std::vector<Plan> located;
  if (has_blocks && std::any_of(given.begin(), given.end(), names_block)) located = WithBlocksLocated(given);
  const absl::Span<const Plan> plans = located.empty() ? given : located;
  tell("matching and progress")(0);
  const absl::StatusOr<Order> order = Order::Of(plans);
  if (!order.ok()) return order.status();
  if (absl::Status status = CheckRaces(plans, *order, tell("races")); !status.ok()) return status;
  return CheckValues(plans, *order, tell("values"));
}

}  // namespace tutti
