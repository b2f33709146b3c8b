#include "tutti/plan.h"

#include <algorithm>
#include <array>

#include "plan/name_of.h"
#include "tutti/native.h"

namespace tutti {

absl::string_view Name(StepKind kind) {
  static constexpr std::array<absl::string_view, 11> kNames = {"send",  "recv",    "signal", "wait",   "reduce", "copy",
                                                               "scale", "combine", "encode", "decode", "native"};
  return NameOf(kNames, kind);
}

absl::string_view Name(Space space) {
  static constexpr std::array<absl::string_view, 5> kNames = {"in", "out", "scratch", "state", "block"};
  return NameOf(kNames, space);
}

absl::string_view Name(StateKind kind) { return kind == StateKind::kResidual ? "residual" : "replica"; }

Ref Ref::Elements(std::int64_t first, std::int64_t n) const {
  Ref part = *this;
  part.offset = offset + first * SizeOf(dtype);
  part.bytes = n * SizeOf(dtype);
  return part;
}

Ref Ref::At(Rank rank) const {
  Ref there = *this;
  there.owner = rank;
  return there;
}

absl::string_view Plan::schedule_of(StepId id) const {
  const auto part =
      std::find_if(parts.rbegin(), parts.rend(), [id](const PlanPart& p) { return p.begin <= id && id < p.end; });
  return part == parts.rend() ? absl::string_view() : part->schedule;
}

bool Plan::maps_peers() const {
  return std::any_of(refs.begin(), refs.end(), [](const Ref& ref) { return ref.owner != kSelf; }) ||
         std::any_of(steps.begin(), steps.end(),
                     [](const Step& step) { return step.kind == StepKind::kSignal || step.kind == StepKind::kWait; });
}

std::int64_t WireBytes(const Plan& plan) {
  std::int64_t bytes = 0;
  for (const Step& step : plan.steps) {
    if (step.kind == StepKind::kSend) bytes += plan.srcs(step)[0].bytes;
    if (step.kind == StepKind::kNative) bytes += NativeBytes(plan, step);
  }
  for (const Ref& ref : plan.refs) {
    if (ref.owner != kSelf) bytes += ref.bytes;
  }
  return bytes;
}

}  // namespace tutti
