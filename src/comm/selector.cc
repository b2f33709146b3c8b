#include "tutti/selector.h"

#include <bit>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace tutti {
namespace {

// Up to this size an all-reduce over messages is bound by latency, beyond it by bandwidth.
constexpr std::int64_t kLatencyBoundBytes = 32 << 10;

// Lower is better. Mapped memory beats messages; then fewest steps for small calls, fewest bytes for large ones.
int PreferenceOf(const Schedule& schedule, const CollectiveSpec& spec, int size, const PlanOptions& options) {
  const bool small = spec.count * SizeOf(spec.dtype) <= kLatencyBoundBytes;
  const bool direct = schedule.name == "direct";
  if (direct) return options.peers_mapped ? 0 : 3;
  if (schedule.name == "recursive_doubling" || schedule.name == "bruck" || schedule.name == "binomial") {
    return small ? 1 : 2;
  }
  // Unless the ranks are a power of two, some send their whole buffer to another one first, and get it back.
  if (schedule.name == "halving_doubling" && !std::has_single_bit(static_cast<unsigned>(size))) return 2;
  return small ? 2 : 1;
}

}  // namespace

absl::StatusOr<Selection> SelectSchedule(const CollectiveSpec& spec, int size, const PlanOptions& options) {
  Selection selection;
  int best = 0;
  for (const Schedule* schedule : AllSchedules()) {
    if (schedule->collective != spec.collective) continue;
    const absl::Status supported = schedule->supports(spec, size, options);
    if (!supported.ok()) {
      absl::StrAppend(&selection.reason, schedule->name, ": refused, ", supported.message(), "\n");
      continue;
    }
    const int preference = PreferenceOf(*schedule, spec, size, options);
    absl::StrAppend(&selection.reason, schedule->name, ": preference ", preference, ", ", schedule->cost, "\n");
    if (selection.schedule == nullptr || preference < best) {
      selection.schedule = schedule;
      best = preference;
    }
  }
  if (selection.schedule == nullptr) {
    return absl::UnimplementedError(
        absl::StrCat("no schedule serves ", ToString(spec), " on ", size, " ranks:\n", selection.reason));
  }
  return selection;
}

void BuildSelected(PlanBuilder& builder) {
  SelectSchedule(builder.spec(), builder.size(), builder.options())->schedule->build(builder);
}

}  // namespace tutti
