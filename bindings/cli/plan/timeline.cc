#include "bindings/cli/plan/timeline.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bindings/cli/plan/phases.h"
#include "tutti/cost.h"

namespace tutti::cli {
namespace {

// Waiting is shown from this share of the whole time on.
constexpr double kVisible = 1.0 / 1500;

using Times = std::vector<std::vector<StepTime>>;

Bar BarOf(const Plan& plan, const Phase& phase) {
  Bar bar{.begin = phase.begin,
          .end = phase.end,
          .shares = {},
          .steps = phase.steps.size(),
          .labels = LabelsOf(plan, phase)};
  double waits = 1;
  for (std::size_t k = 0; k < kStepKinds; ++k) {
    if (phase.kinds[k].steps == 0) continue;
    bar.shares.push_back({static_cast<StepKind>(k), phase.part(k)});
    waits -= phase.part(k);
  }
  if (waits > kVisible) {
    const auto place = std::find_if(bar.shares.begin(), bar.shares.end(),
                                    [](const BarShare& share) { return share.kind > StepKind::kWait; });
    bar.shares.insert(place, {StepKind::kWait, waits});
  }
  return bar;
}

// A lane, and the bar of each step of its plan; waits have none.
struct DrawnRank {
  Lane lane;
  std::vector<int> bar_of;
  bool mapped = false;
};

constexpr int kNoBar = -1;

class LaneMaker {
 public:
  LaneMaker(const Plan& plan, absl::Span<const StepTime> times, double seconds)
      : plan_(plan), times_(times), seconds_(seconds) {}

  DrawnRank Make() {
    drawn_.lane.rank = plan_.rank;
    drawn_.bar_of.assign(plan_.steps.size(), kNoBar);
    drawn_.mapped =
        std::any_of(plan_.steps.begin(), plan_.steps.end(), [&](const Step& step) { return IsMapped(plan_, step); });
    for (const Phase& phase : PhasesOf(plan_, times_, seconds_)) {
      if (phase.is_folded(seconds_)) {
        WaitUntil(phase.begin, phase.steps[0]);
        Append(BarOf(plan_, phase), phase.steps);
        continue;
      }
      for (const StepId id : phase.steps) AppendOne(id);
    }
    double end = 0;
    for (const StepTime& time : times_) end = std::max(end, time.end);
    WaitUntil(end, static_cast<StepId>(plan_.steps.size()));
    return std::move(drawn_);
  }

 private:
  void AppendOne(StepId id) {
    const Step& step = plan_.steps[id];
    WaitUntil(times_[id].begin, id);
    const double begin = std::max(times_[id].begin, at_);
    Append({.begin = begin,
            .end = std::max(times_[id].worked, begin),
            .shares = {{step.kind, 1}},
            .steps = 1,
            .labels = LabelsOf(plan_, step)},
           {&id, 1});
  }

  void Append(Bar bar, absl::Span<const StepId> steps) {
    for (const StepId id : steps) drawn_.bar_of[id] = static_cast<int>(drawn_.lane.bars.size());
    at_ = bar.end;
    drawn_.lane.bars.push_back(std::move(bar));
  }

  // Shows that the rank waits until `time`, when the step `next` begins, or nothing more when it is none of the plan.
  void WaitUntil(double time, StepId next) {
    if (time - at_ <= seconds_ * kVisible) return;
    std::vector<std::string> labels = {"waits"};
    const bool is_recv = next < plan_.steps.size() && plan_.steps[next].kind == StepKind::kRecv;
    if (is_recv && plan_.steps[next].peer != kAnySource) {
      labels.insert(labels.begin(), absl::StrCat("waits for rank ", plan_.steps[next].peer));
    }
    Append({.begin = at_, .end = time, .shares = {{StepKind::kWait, 1}}, .steps = 0, .labels = std::move(labels)}, {});
  }

  const Plan& plan_;
  const absl::Span<const StepTime> times_;
  const double seconds_;
  double at_ = 0;  // up to here there are bars
  DrawnRank drawn_;
};

// Finds the arrows between lanes. Arrows from one bar to another become one, as do all from one bar of several steps to
// such bars of one lane.
class ArrowMaker {
 public:
  ArrowMaker(absl::Span<const Plan> plans, const Times& times, const std::vector<std::size_t>& shown,
             const std::vector<DrawnRank>& drawn)
      : plans_(plans), times_(times), shown_(shown), drawn_(drawn), lane_of_(plans.size(), shown.size()) {
    for (std::size_t lane = 0; lane < shown.size(); ++lane) lane_of_[shown[lane]] = lane;
  }

  std::vector<Arrow> Make() {
    for (std::size_t lane = 0; lane < shown_.size(); ++lane) {
      AddMessages(lane);
      AddSignals(lane);
    }
    std::vector<Arrow> arrows;
    arrows.reserve(arrows_.size());
    for (const auto& [ends, arrow] : arrows_) arrows.push_back(arrow);
    std::stable_sort(arrows.begin(), arrows.end(), [](const Arrow& a, const Arrow& b) { return a.left < b.left; });
    return arrows;
  }

 private:
  void AddMessages(std::size_t lane) {
    const Plan& plan = plans_[shown_[lane]];
    for (StepId id = 0; id < plan.steps.size(); ++id) {
      if (plan.steps[id].kind != StepKind::kRecv) continue;
      const StepTime& time = times_[shown_[lane]][id];
      Add(lane, time, drawn_[lane].bar_of[id], time.begin, BytesOf(plan, plan.steps[id]));
    }
  }

  // A rank may wait for several signals at one time; only the last of these signals is worth an arrow.
  void AddSignals(std::size_t lane) {
    const Plan& plan = plans_[shown_[lane]];
    const std::vector<StepTime>& times = times_[shown_[lane]];
    std::vector<StepId> waits;
    for (StepId id = 0; id < plan.steps.size(); ++id) {
      if (plan.steps[id].kind == StepKind::kWait) waits.push_back(id);
    }
    std::stable_sort(waits.begin(), waits.end(), [&](StepId a, StepId b) { return times[a].end < times[b].end; });
    const std::vector<Bar>& bars = drawn_[lane].lane.bars;
    for (std::size_t b = 0; b < bars.size(); ++b) {
      const bool waits_within = std::any_of(bars[b].shares.begin(), bars[b].shares.end(),
                                            [](const BarShare& share) { return share.kind == StepKind::kWait; });
      if (!waits_within) continue;
      const auto ends_later = [&](double end, StepId id) { return end < times[id].end; };
      const auto begin = std::upper_bound(waits.begin(), waits.end(), bars[b].begin, ends_later);
      const auto end = std::upper_bound(begin, waits.end(), bars[b].end, ends_later);
      const auto last = std::max_element(begin, end, [&](StepId a, StepId c) { return times[a].left < times[c].left; });
      if (last != end) Add(lane, times[*last], static_cast<int>(b), times[*last].end, 0);
    }
  }

  void Add(std::size_t lane, const StepTime& time, int bar, double taken, std::int64_t bytes) {
    if (time.source_plan < 0) return;
    const std::size_t from = lane_of_[static_cast<std::size_t>(time.source_plan)];
    if (from == shown_.size()) return;
    const Step& source = plans_[shown_[from]].steps[time.source_step];
    const bool signal = source.kind == StepKind::kSignal;
    const int from_bar = drawn_[from].bar_of[time.source_step];
    const bool between_folded = drawn_[from].lane.bars[from_bar].steps > 1 && drawn_[lane].lane.bars[bar].steps > 1;
    const auto key = std::tuple(signal, from, from_bar, lane, between_folded ? kNoBar : bar);
    const auto [place, is_new] = arrows_.try_emplace(key, Arrow{.signal = signal,
                                                                .from_lane = from,
                                                                .to_lane = lane,
                                                                .left = time.left,
                                                                .taken = taken,
                                                                .count = 0,
                                                                .bytes = 0});
    Arrow& arrow = place->second;
    if (time.left < arrow.left) std::tie(arrow.left, arrow.taken) = std::pair(time.left, taken);
    arrow.bytes += bytes;
    ++arrow.count;
  }

  absl::Span<const Plan> plans_;
  const Times& times_;
  const std::vector<std::size_t>& shown_;
  const std::vector<DrawnRank>& drawn_;
  std::vector<std::size_t> lane_of_;  // by plan
  std::map<std::tuple<bool, std::size_t, int, std::size_t, int>, Arrow> arrows_;
};

// The indices of the plans that get a lane.
std::vector<std::size_t> Shown(absl::Span<const Plan> plans, Rank first) {
  const std::size_t lanes = plans.size() > kMaxLanes ? kLanesOfMany : plans.size();
  std::size_t begin = 0;
  while (begin + lanes < plans.size() && plans[begin].rank < first) ++begin;
  std::vector<std::size_t> shown(lanes);
  std::iota(shown.begin(), shown.end(), begin);
  return shown;
}

// Keeps so many arrows that they can be told apart, and notes which.
void Thin(Timeline& timeline) {
  const Rank rank = timeline.lanes[0].rank;
  const std::size_t all = timeline.arrows.size();
  if (all <= kMaxArrows) return;
  const auto is_elsewhere = [](const Arrow& arrow) { return arrow.from_lane != 0 && arrow.to_lane != 0; };
  timeline.arrows.erase(std::remove_if(timeline.arrows.begin(), timeline.arrows.end(), is_elsewhere),
                        timeline.arrows.end());
  const bool still_many = timeline.arrows.size() > kMaxArrows;
  if (still_many) timeline.arrows.resize(kMaxArrows);
  timeline.notes.push_back(absl::StrCat("Of ", all, " arrows only ", still_many ? "the first " : "those ",
                                        still_many ? absl::StrCat(kMaxArrows, " ") : "", "to and from rank ", rank,
                                        " are drawn."));
}

}  // namespace

absl::StatusOr<Timeline> TimelineOf(absl::Span<const Plan> plans, const CostModel& model, absl::Span<const int> nodes,
                                    Rank first) {
  const absl::StatusOr<Times> times = TimesOf(plans, model, nodes);
  if (!times.ok()) return times.status();
  Timeline timeline;
  for (const std::vector<StepTime>& of_plan : *times) {
    for (const StepTime& time : of_plan) timeline.seconds = std::max(timeline.seconds, time.end);
  }
  const std::vector<std::size_t> shown = Shown(plans, first);
  std::vector<DrawnRank> drawn;
  for (const std::size_t plan : shown) {
    drawn.push_back(LaneMaker(plans[plan], (*times)[plan], timeline.seconds).Make());
    drawn.back().lane.node = nodes.empty() ? 0 : nodes[plans[plan].rank];
  }
  timeline.arrows = ArrowMaker(plans, *times, shown, drawn).Make();
  std::array<bool, kStepKinds> used = {};
  for (DrawnRank& rank : drawn) {
    for (const Bar& bar : rank.lane.bars) {
      for (const BarShare& share : bar.shares) used[static_cast<std::size_t>(share.kind)] = true;
    }
    timeline.mapped = timeline.mapped || rank.mapped;
    timeline.lanes.push_back(std::move(rank.lane));
  }
  for (std::size_t k = 0; k < kStepKinds; ++k) {
    if (used[k]) timeline.kinds.push_back(static_cast<StepKind>(k));
  }
  const int ranks = IsPointToPoint(plans[0].spec.collective) ? static_cast<int>(plans.size()) : plans[0].size;
  if (static_cast<int>(shown.size()) < ranks) {
    timeline.notes.push_back(
        absl::StrCat("Drawn: ranks ", timeline.lanes.front().rank, "…", timeline.lanes.back().rank, " of ", ranks,
                     " (--rank R: from rank R on). Messages and signals to and from the others are not drawn."));
  }
  if (static_cast<int>(plans.size()) < ranks) {
    timeline.notes.push_back(absl::StrCat("Only the plans of ", plans.size(),
                                          " ranks were simulated; the other ranks are taken to do what these do."));
  }
  Thin(timeline);
  return timeline;
}

}  // namespace tutti::cli
