// The native steps of PlanBuilder.
#include <algorithm>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "plan/native_ranges.h"
#include "tutti/plan_builder.h"

namespace tutti {

// The index of the group for which steps are being written, as in Step::group. All ranks in their order are no group,
// even where they were named one by one.
std::uint16_t PlanBuilder::GroupIndex() {
  const auto is_all = [&] {
    for (std::size_t place = 0; place < group_.size(); ++place) {
      if (group_[place] != static_cast<Rank>(place)) return false;
    }
    return group_.size() == static_cast<std::size_t>(plan_.size);
  };
  if (group_.empty() || is_all()) return 0;
  const auto found = std::find(plan_.groups.begin(), plan_.groups.end(), group_);
  const auto index = static_cast<std::size_t>(found - plan_.groups.begin());
  if (index >= std::numeric_limits<std::uint16_t>::max()) {
    Fail("native: a plan has native steps of at most 65,535 groups");
    return 0;
  }
  if (found == plan_.groups.end()) plan_.groups.push_back(group_);
  return static_cast<std::uint16_t>(index + 1);
}

void PlanBuilder::Native(const CollectiveSpec& spec, const Ref& in, const Ref& out) {
  if (!status_.ok()) return;
  if (absl::Status valid = Validate(spec, rank(), size()); !valid.ok()) {
    return Fail(absl::StrCat("native: ", valid.message()));
  }
  if (!HasNativeForm(spec.collective)) {
    return Fail(absl::StrCat("native: ", Name(spec.collective), " has no native form"));
  }
  if (size() < 2) return Fail("native: a collective of one rank is a Copy");
  const bool averages = Reduces(spec.collective) && spec.op == ReduceOp::kAvg;
  if (averages && size() != world_size()) {
    return Fail(absl::StrCat("native: avg would divide by ", size(), ", the number of ranks that take part, not by ",
                             world_size(), ", the size of the world; use op sum, then Scale"));
  }
  if (Reduces(spec.collective) && spec.op == ReduceOp::kPremulSum) {
    return Fail("native: op premul_sum cannot be used; write the products with ScaleByFactor, then use op sum");
  }
  Ref from = in;
  Ref to = out;
  if (from.bytes > 0 && !CheckRef(StepKind::kNative, "srcs[0]", from, false)) return;
  if (to.bytes > 0 && !CheckRef(StepKind::kNative, "dsts[0]", to, true)) return;
  if (const std::string fault = NativeRangeFault(spec, rank(), size(), from, to); !fault.empty()) {
    return Fail(absl::StrCat("native: ", fault));
  }
  if (from.bytes == 0 && to.bytes == 0) return;
  const std::uint16_t group = GroupIndex();
  if (!status_.ok()) return;
  natives_.resize(std::max<std::size_t>(natives_.size(), group + std::size_t{1}));
  Append({.kind = StepKind::kNative,
          .op = Reduces(spec.collective) ? spec.op : ReduceOp::kSum,
          .collective = spec.collective,
          .ordinal = natives_[group]++,
          .peer = HasRoot(spec.collective) ? WorldRank(spec.root) : kSelf,
          .divisor = averages ? size() : 1,
          .group = group},
         {&to, to.bytes > 0 ? 1U : 0U}, {&from, from.bytes > 0 ? 1U : 0U});
}

}  // namespace tutti
