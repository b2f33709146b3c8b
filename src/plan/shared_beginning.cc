#include "plan/shared_beginning.h"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace tutti {
namespace {

bool IsMessage(const Step& step) { return step.kind == StepKind::kSend || step.kind == StepKind::kRecv; }

bool AreEqual(const Plan& a, const Step& in_a, const Plan& b, const Step& in_b) {
  const bool fields = in_a.kind == in_b.kind && in_a.op == in_b.op && in_a.accumulate == in_b.accumulate &&
                      in_a.finite == in_b.finite && in_a.by_factor == in_b.by_factor && in_a.ordinal == in_b.ordinal &&
                      in_a.peer == in_b.peer && in_a.divisor == in_b.divisor;
  // The steps of schedules in mapped memory: no codec, no coefficients, no group of ranks.
  const bool plain = in_a.kind != StepKind::kEncode && in_a.kind != StepKind::kDecode &&
                     in_a.kind != StepKind::kCombine && in_a.kind != StepKind::kNative;
  return fields && plain && a.dsts(in_a) == b.dsts(in_b) && a.srcs(in_a) == b.srcs(in_b) &&
         a.deps_of(in_a) == b.deps_of(in_b);
}

// Whether the step does more in the memory of peers than read their scratch. What a rank writes there could be lost: a
// peer that goes over to its other plan may take other scratch.
bool DoesMoreThanReadScratch(const Plan& plan, const Step& step) {
  const absl::Span<const Ref> dsts = plan.dsts(step);
  const absl::Span<const Ref> srcs = plan.srcs(step);
  return std::any_of(dsts.begin(), dsts.end(), [](const Ref& ref) { return ref.owner != kSelf; }) ||
         std::any_of(srcs.begin(), srcs.end(),
                     [](const Ref& ref) { return ref.owner != kSelf && ref.space != Space::kScratch; });
}

// Whether the steps of `plan` from `first` on wait for a further signal of a peer before they touch the peer's memory.
// With that signal the peer tells where its scratch lies after the branch.
bool WaitsAgain(const Plan& plan, StepId first) {
  std::vector<bool> has_waited(static_cast<std::size_t>(plan.size));
  for (StepId id = first; id < plan.steps.size(); ++id) {
    const Step& step = plan.steps[id];
    if (step.kind == StepKind::kWait) has_waited[static_cast<std::size_t>(step.peer)] = true;
    const auto is_early = [&](const Ref& ref) {
      return ref.owner != kSelf && !has_waited[static_cast<std::size_t>(ref.owner)];
    };
    const absl::Span<const Ref> dsts = plan.dsts(step);
    const absl::Span<const Ref> srcs = plan.srcs(step);
    if (std::any_of(dsts.begin(), dsts.end(), is_early) || std::any_of(srcs.begin(), srcs.end(), is_early))
      return false;
  }
  return true;
}

// The number of steps with which both plans begin and in which the rank meets all others; 0 if it does not.
StepId SharedMeeting(const Plan& mapped, const Plan& other) {
  if (std::any_of(mapped.steps.begin(), mapped.steps.end(), IsMessage)) return 0;
  const auto most = static_cast<StepId>(std::min(mapped.steps.size(), other.steps.size()));
  StepId shared = 0;
  int signals = 0;
  std::vector<bool> is_met(static_cast<std::size_t>(mapped.size));
  is_met[static_cast<std::size_t>(mapped.rank)] = true;
  for (; shared < most; ++shared) {
    const Step& step = mapped.steps[shared];
    if (!AreEqual(mapped, step, other, other.steps[shared]) || DoesMoreThanReadScratch(mapped, step)) break;
    // The second signal tells peers what only one of the two plans has done.
    if (step.kind == StepKind::kSignal && ++signals == 2) break;
    if (step.kind != StepKind::kWait) continue;
    if (step.ordinal != 1) break;
    is_met[static_cast<std::size_t>(step.peer)] = true;
  }
  return std::find(is_met.begin(), is_met.end(), false) == is_met.end() ? shared : 0;
}

}  // namespace

StepId SharedBeginning(const Plan& mapped, const Plan& staged) {
  const StepId shared = SharedMeeting(mapped, staged);
  return WaitsAgain(staged, shared) ? shared : 0;
}

StepId SharedBeginningOfReader(const Plan& mapped, const Plan& reader) {
  return reader.scratch_bytes <= mapped.scratch_bytes ? SharedMeeting(mapped, reader) : 0;
}

}  // namespace tutti
