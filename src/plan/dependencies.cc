#include "plan/dependencies.h"

#include <algorithm>

namespace tutti {

// Makes `at` a boundary and returns the first interval that starts at or after it.
PlanBuilder::Dependencies::Intervals::iterator PlanBuilder::Dependencies::Split(Intervals& intervals, std::int64_t at) {
  auto next = intervals.lower_bound(at);
  if (next != intervals.begin() && (next == intervals.end() || next->first != at)) {
    auto before = std::prev(next);
    if (before->second.end > at) {
      Interval rest = before->second;
      before->second.end = at;
      return intervals.emplace_hint(next, at, rest);
    }
  }
  return next;
}

void PlanBuilder::Dependencies::Read(Intervals& intervals, const Ref& ref, StepId step) {
  const std::int64_t end = ref.offset + ref.bytes;
  Split(intervals, end);
  auto it = Split(intervals, ref.offset);
  for (std::int64_t at = ref.offset; at < end; ++it) {
    if (it == intervals.end() || it->first > at) {  // bytes nobody touched before
      const std::int64_t until = it == intervals.end() ? end : std::min(end, it->first);
      it = intervals.emplace_hint(it, at, Interval{.end = until});
    }
    Interval& interval = it->second;
    if (interval.writer != kNone) found_.push_back(interval.writer);
    if (interval.readers == kNoReader || readers_[interval.readers].step != step) {
      readers_.push_back({step, interval.readers});
      interval.readers = static_cast<std::uint32_t>(readers_.size() - 1);
    }
    at = interval.end;
  }
}

void PlanBuilder::Dependencies::Write(Intervals& intervals, const Ref& ref, StepId step) {
  const std::int64_t end = ref.offset + ref.bytes;
  auto last = Split(intervals, end);
  auto first = Split(intervals, ref.offset);
  for (auto it = first; it != last; ++it) {
    // Readers follow the writer, so a dependency on the readers is enough.
    if (it->second.readers == kNoReader && it->second.writer != kNone) found_.push_back(it->second.writer);
    for (std::uint32_t r = it->second.readers; r != kNoReader; r = readers_[r].next) found_.push_back(readers_[r].step);
  }
  intervals.erase(first, last);
  intervals.emplace_hint(last, ref.offset, Interval{.end = end, .writer = step});
}

void PlanBuilder::Dependencies::FindTouching(const Ref& ref) {
  const Intervals& intervals = memory_[{ref.owner, ref.space}];
  auto it = intervals.upper_bound(ref.offset);
  if (it != intervals.begin() && std::prev(it)->second.end > ref.offset) --it;
  for (; it != intervals.end() && it->first < ref.offset + ref.bytes; ++it) {
    if (it->second.writer != kNone) found_.push_back(it->second.writer);
    for (std::uint32_t r = it->second.readers; r != kNoReader; r = readers_[r].next) found_.push_back(readers_[r].step);
  }
}

// Every step after a Wait must follow it: a step with a dependency later than the Wait does so anyway.
void PlanBuilder::Dependencies::FollowLastWait() {
  const bool implied = std::any_of(found_.begin(), found_.end(), [&](StepId dep) { return dep > last_wait_; });
  if (last_wait_ != kNone && !implied) found_.push_back(last_wait_);
}

// Removes dependencies that another dependency already implies, as far as a short search backwards finds them.
void PlanBuilder::Dependencies::Prune(const Plan& plan) {
  std::sort(found_.begin(), found_.end());
  found_.erase(std::unique(found_.begin(), found_.end()), found_.end());
  constexpr std::size_t kMax = 16;
  constexpr std::size_t kLongest = 64;
  if (found_.size() < 2 || found_.size() > kMax) return;
  implied_.clear();
  auto visit = [&](StepId id) {
    for (StepId dep : plan.deps_of(plan.steps[id])) {
      if (dep >= found_.front() && implied_.size() < kLongest) implied_.push_back(dep);
    }
  };
  for (StepId dep : found_) visit(dep);
  for (std::size_t i = 0; i < implied_.size(); ++i) visit(implied_[i]);
  std::erase_if(found_, [&](StepId d) { return std::find(implied_.begin(), implied_.end(), d) != implied_.end(); });
}

void PlanBuilder::Dependencies::Add(Plan& plan, Step& step) {
  const StepId id = static_cast<StepId>(plan.steps.size());
  found_.clear();
  if (step.kind == StepKind::kSignal) {
    std::copy_if(leaves_.begin(), leaves_.end(), std::back_inserter(found_), [&](StepId s) { return leaf_[s]; });
    leaves_.clear();
  } else {
    for (const Ref& ref : plan.srcs(step)) Read(memory_[{ref.owner, ref.space}], ref, id);
    for (const Ref& ref : plan.dsts(step)) {
      if (step.accumulate) Read(memory_[{ref.owner, ref.space}], ref, id);
      Write(memory_[{ref.owner, ref.space}], ref, id);
    }
    // A source that is also a destination has recorded this step as its own reader.
    std::erase(found_, id);
    // A rank takes its native steps one after the other, in the order of the plan.
    if (step.kind == StepKind::kNative && last_native_ != kNone) found_.push_back(last_native_);
    FollowLastWait();
  }
  Finish(plan, step);
}

void PlanBuilder::Dependencies::AddSignalAfter(absl::Span<const Ref> touched, Plan& plan, Step& signal) {
  found_.clear();
  for (const Ref& ref : touched) FindTouching(ref);
  if (last_signal_ != kNone) found_.push_back(last_signal_);
  FollowLastWait();
  Finish(plan, signal);
}

void PlanBuilder::Dependencies::Finish(Plan& plan, Step& step) {
  const StepId id = static_cast<StepId>(plan.steps.size());
  Prune(plan);
  step.first_dep = static_cast<std::uint32_t>(plan.deps.size());
  step.num_deps = static_cast<std::uint32_t>(found_.size());
  plan.deps.insert(plan.deps.end(), found_.begin(), found_.end());
  for (StepId dep : found_) leaf_[dep] = false;
  leaf_.push_back(true);
  leaves_.push_back(id);
  if (step.kind == StepKind::kWait) last_wait_ = id;
  if (step.kind == StepKind::kSignal) last_signal_ = id;
  if (step.kind == StepKind::kNative) last_native_ = id;
}

}  // namespace tutti
