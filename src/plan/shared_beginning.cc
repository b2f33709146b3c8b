#include "plan/shared_beginning.h"

#include <algorithm>

namespace tutti {
namespace {

bool IsMessage(const Step& step) { return step.kind == StepKind::kSend || step.kind == StepKind::kRecv; }

bool AreEqual(const Plan& a, const Step& in_a, const Plan& b, const Step& in_b) {
  const bool fields = in_a.kind == in_b.kind && in_a.op == in_b.op && in_a.accumulate == in_b.accumulate &&
                      in_a.finite == in_b.finite && in_a.by_factor == in_b.by_factor && in_a.ordinal == in_b.ordinal &&
                      in_a.peer == in_b.peer && in_a.divisor == in_b.divisor;
  const bool plain = in_a.kind != StepKind::kEncode && in_a.kind != StepKind::kDecode &&
                     in_a.kind != StepKind::kCombine;  // steps of schedules: no codec, no coefficients
  return fields && plain && a.dsts(in_a) == b.dsts(in_b) && a.srcs(in_a) == b.srcs(in_b) &&
         a.deps_of(in_a) == b.deps_of(in_b);
}

bool ReachesBuffers(const Plan& plan, const Step& step) {
  const auto reaches = [](const Ref& ref) { return ref.owner != kSelf && ref.space != Space::kScratch; };
  const absl::Span<const Ref> dsts = plan.dsts(step);
  const absl::Span<const Ref> srcs = plan.srcs(step);
  return std::any_of(dsts.begin(), dsts.end(), reaches) || std::any_of(srcs.begin(), srcs.end(), reaches);
}

}  // namespace

StepId SharedBeginning(const Plan& mapped, const Plan& staged) {
  if (std::any_of(mapped.steps.begin(), mapped.steps.end(), IsMessage)) return 0;
  const auto most = static_cast<StepId>(std::min(mapped.steps.size(), staged.steps.size()));
  StepId shared = 0;
  int signals = 0;
  int peers_to_meet = mapped.size - 1;
  for (; shared < most; ++shared) {
    const Step& step = mapped.steps[shared];
    if (!AreEqual(mapped, step, staged, staged.steps[shared]) || ReachesBuffers(mapped, step)) break;
    // The second signal tells peers what only one of the two plans has done.
    if (step.kind == StepKind::kSignal && ++signals == 2) break;
    if (step.kind == StepKind::kWait) --peers_to_meet;
  }
  return peers_to_meet == 0 ? shared : 0;
}

}  // namespace tutti
