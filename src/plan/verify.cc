#include "tutti/verify.h"

#include "absl/status/statusor.h"
#include "plan/form.h"
#include "plan/order.h"
#include "plan/races.h"
#include "plan/values.h"

namespace tutti {

absl::Status Verify(absl::Span<const Plan> plans) {
  if (absl::Status status = CheckForm(plans); !status.ok()) return status;
  const absl::StatusOr<Order> order = Order::Of(plans);
  if (!order.ok()) return order.status();
  if (absl::Status status = CheckRaces(plans, *order); !status.ok()) return status;
  return CheckValues(plans, *order);
}

}  // namespace tutti
