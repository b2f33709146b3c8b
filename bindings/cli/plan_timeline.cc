#include "bindings/cli/plan_timeline.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tutti/cost.h"

namespace tutti::cli {
namespace {

// Steps from this share of the whole time on are never drawn together with steps of other kinds.
constexpr double kGrain = 1.0 / 60;
// Shorter steps are drawn together, until they take kFolded, where they are shorter than kShort on average.
constexpr double kShort = kGrain / 3;
constexpr double kFolded = 5 * kGrain;
// Waiting is shown from this share of the whole time on.
constexpr double kVisible = 1.0 / 1500;
// So many short steps in a row, none of them like another, are drawn one by one.
constexpr std::size_t kFewSteps = 5;
// Neighbours whose shares differ by more in sum are different phases of a plan.
constexpr double kAlike = 0.3;

constexpr std::size_t kKinds = static_cast<std::size_t>(StepKind::kNative) + 1;
constexpr Rank kSeveral = std::numeric_limits<Rank>::min();

using Times = std::vector<std::vector<StepTime>>;

bool IsMessage(StepKind kind) { return kind == StepKind::kSend || kind == StepKind::kRecv; }

std::int64_t BytesOf(const Plan& plan, const Step& step) {
  if (step.num_dsts > 0) return plan.dsts(step)[0].bytes;
  return step.num_srcs > 0 ? plan.srcs(step)[0].bytes : 0;
}

// " to 3", " from 2": the other end of a message; empty for other steps.
std::string OtherEnd(StepKind kind, Rank peer) {
  if (!IsMessage(kind) || peer == kSeveral) return "";
  return absl::StrCat(kind == StepKind::kSend ? " to " : " from ", peer == kAnySource ? "any" : absl::StrCat(peer));
}

// Whether the step reads or writes the memory of another rank.
bool IsMapped(const Plan& plan, const Step& step) {
  const absl::Span<const Ref> refs(plan.refs.data() + step.first_ref, std::size_t{step.num_dsts} + step.num_srcs);
  return std::any_of(refs.begin(), refs.end(), [](const Ref& ref) { return ref.owner != kSelf; });
}

std::string LabelOf(const Plan& plan, const Step& step) {
  const std::string size = BytesInWords(BytesOf(plan, step));
  const bool mapped = IsMapped(plan, step);
  switch (step.kind) {
    case StepKind::kSignal:
      return "signal";
    case StepKind::kReduce:
    case StepKind::kCombine:
      return absl::StrCat(Name(step.kind), " ", step.num_srcs, " × ", size, mapped ? ", mapped" : "");
    case StepKind::kEncode:
    case StepKind::kDecode:
      return absl::StrCat(Name(step.kind), " ", BytesInWords(plan.srcs(step)[0].bytes), " to ", size);
    case StepKind::kNative:
      return absl::StrCat(Name(step.kind), " ", Name(step.collective), " ", size);
    default:
      return absl::StrCat(Name(step.kind), " ", size, OtherEnd(step.kind, step.peer), mapped ? ", mapped" : "");
  }
}

// What one rank does from `begin` to `end`, in steps that follow each other.
struct Phase {
  struct OfKind {
    std::size_t steps = 0;
    double seconds = 0;
    std::int64_t least = 0, most = 0;  // bytes
    Rank peer = kSelf;

    bool operator==(const OfKind&) const = default;
  };

  double begin = 0;
  double end = 0;
  bool is_short = true;  // whether it is made of steps that are too short for bars of their own
  std::vector<StepId> steps;
  std::array<OfKind, kKinds> kinds;

  void Add(const Phase& next) {
    begin = steps.empty() ? next.begin : begin;
    end = next.end;
    steps.insert(steps.end(), next.steps.begin(), next.steps.end());
    for (std::size_t k = 0; k < kKinds; ++k) {
      const OfKind& more = next.kinds[k];
      if (more.steps == 0) continue;
      OfKind& mine = kinds[k];
      mine.least = mine.steps == 0 ? more.least : std::min(mine.least, more.least);
      mine.most = mine.steps == 0 ? more.most : std::max(mine.most, more.most);
      mine.peer = mine.steps == 0 || mine.peer == more.peer ? more.peer : kSeveral;
      mine.steps += more.steps;
      mine.seconds += more.seconds;
    }
  }

  double length() const { return end - begin; }
  double part(std::size_t kind) const { return length() > 0 ? kinds[kind].seconds / length() : 0; }
  // Whether all steps are of one kind and, where they are messages, have one peer.
  bool is_uniform() const {
    const auto used = [](const OfKind& of) { return of.steps > 0; };
    const auto first = std::find_if(kinds.begin(), kinds.end(), used);
    return std::count_if(kinds.begin(), kinds.end(), used) == 1 && first->peer != kSeveral;
  }
  // Whether the steps are drawn as one bar, when the whole time is `seconds`.
  bool is_folded(double seconds) const {
    if (steps.size() == 1) return false;
    if (is_uniform()) return true;
    if (length() >= seconds * kShort * static_cast<double>(steps.size())) return false;
    return steps.size() > kFewSteps ||
           std::any_of(kinds.begin(), kinds.end(), [](const OfKind& of) { return of.steps > 1; });
  }
};

// Whether `next` goes on with what a rank does in `phase`.
bool GoesOn(const Phase& phase, const Phase& next) {
  bool is_same = phase.is_uniform() && next.is_uniform();
  for (std::size_t k = 0; is_same && k < kKinds; ++k) {
    is_same = phase.kinds[k].peer == next.kinds[k].peer && (phase.kinds[k].steps > 0) == (next.kinds[k].steps > 0);
  }
  if (is_same) return true;
  if (!phase.is_short || !next.is_short) return false;
  double difference = 0;
  for (std::size_t k = 0; k < kKinds; ++k) {
    difference += std::abs(phase.part(k) - next.part(k));
    const bool both = phase.kinds[k].steps > 0 && next.kinds[k].steps > 0;
    if (both && phase.kinds[k].peer != next.kinds[k].peer) return false;
  }
  return difference <= kAlike;
}

// The phases of one rank's plan, one after the other in time; a long step is a phase of its own.
std::vector<Phase> PhasesOf(const Plan& plan, absl::Span<const StepTime> times, double seconds) {
  const double grain = seconds * kGrain;
  std::vector<StepId> order;
  for (StepId id = 0; id < plan.steps.size(); ++id) {
    if (plan.steps[id].kind != StepKind::kWait) order.push_back(id);
  }
  std::stable_sort(order.begin(), order.end(), [&](StepId a, StepId b) { return times[a].begin < times[b].begin; });
  std::vector<Phase> phases;
  const auto append = [&](Phase next) {
    const bool goes_on = !phases.empty() && next.begin - phases.back().end < grain && GoesOn(phases.back(), next);
    if (goes_on) phases.back().Add(next);
    if (!goes_on) phases.push_back(std::move(next));
  };
  Phase open;
  const auto close = [&] {
    if (!open.steps.empty()) append(std::exchange(open, Phase()));
  };
  double last = 0;
  for (const StepId id : order) {
    const Step& step = plan.steps[id];
    Phase one;
    one.begin = std::max(times[id].begin, last);  // a native step may overlap others
    one.end = last = std::max(times[id].worked, one.begin);
    one.steps = {id};
    const std::int64_t bytes = BytesOf(plan, step);
    one.kinds[static_cast<std::size_t>(step.kind)] = {
        .steps = 1, .seconds = one.length(), .least = bytes, .most = bytes, .peer = step.peer};
    const bool is_long = one.length() >= grain;
    if (is_long || (!open.steps.empty() && one.begin - open.end >= grain)) close();
    if (is_long) {
      one.is_short = false;
      append(std::move(one));
      continue;
    }
    open.Add(one);
    if (open.length() >= seconds * kFolded) close();
  }
  close();
  return phases;
}

std::vector<std::string> LabelsOf(const Plan& plan, const Phase& phase) {
  std::vector<std::string> full, brief;
  for (std::size_t k = 0; k < kKinds; ++k) {
    const Phase::OfKind& of = phase.kinds[k];
    if (of.steps == 0) continue;
    const auto kind = static_cast<StepKind>(k);
    brief.push_back(absl::StrCat(of.steps, " × ", Name(kind)));
    const std::string least = BytesInWords(of.least), most = BytesInWords(of.most);
    const std::string size = least == most ? most : absl::StrCat(least, "…", most);
    full.push_back(kind == StepKind::kSignal ? brief.back()
                                             : absl::StrCat(brief.back(), " ", size, OtherEnd(kind, of.peer)));
  }
  if (full.size() == 1) {
    const Step& step = plan.steps[phase.steps[0]];
    const Phase::OfKind& all = phase.kinds[static_cast<std::size_t>(step.kind)];
    if (all.least == all.most) full[0] = absl::StrCat(all.steps, " × ", LabelOf(plan, step));
  }
  return {absl::StrJoin(full, ", "), absl::StrJoin(brief, ", "), absl::StrCat(phase.steps.size(), " steps"),
          absl::StrCat("×", phase.steps.size())};
}

Bar BarOf(const Plan& plan, const Phase& phase) {
  Bar bar{.begin = phase.begin,
          .end = phase.end,
          .shares = {},
          .steps = phase.steps.size(),
          .labels = LabelsOf(plan, phase)};
  double waits = 1;
  for (std::size_t k = 0; k < kKinds; ++k) {
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
    for (const Phase& phase : PhasesOf(plan_, times_, seconds_)) {
      if (phase.is_folded(seconds_)) {
        for (const StepId id : phase.steps) drawn_.mapped = drawn_.mapped || IsMapped(plan_, plan_.steps[id]);
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
    drawn_.mapped = drawn_.mapped || IsMapped(plan_, step);
    WaitUntil(times_[id].begin, id);
    const double begin = std::max(times_[id].begin, at_);
    Append({.begin = begin,
            .end = std::max(times_[id].worked, begin),
            .shares = {{step.kind, 1}},
            .steps = 1,
            .labels = {LabelOf(plan_, step), std::string(Name(step.kind))}},
           {&id, 1});
  }

  void Append(Bar bar, absl::Span<const StepId> steps) {
    for (const StepId id : steps) drawn_.bar_of[id] = static_cast<int>(drawn_.lane.bars.size());
    at_ = bar.end;
    drawn_.lane.bars.push_back(std::move(bar));
  }

  // Shows that the rank waits until `time`, when the step `next` begins, or nothing more when it is none of the plan.
  void WaitUntil(double time, StepId next) {
    if (time - at_ < seconds_ * kVisible) return;
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

  // Of the signals for which a rank waits at one time, only the last is worth an arrow.
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
  const std::size_t lanes = plans.size() > kMostLanes ? kLanesOfMany : plans.size();
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
  if (all <= kMostArrows) return;
  const auto is_elsewhere = [](const Arrow& arrow) { return arrow.from_lane != 0 && arrow.to_lane != 0; };
  timeline.arrows.erase(std::remove_if(timeline.arrows.begin(), timeline.arrows.end(), is_elsewhere),
                        timeline.arrows.end());
  const bool still_many = timeline.arrows.size() > kMostArrows;
  if (still_many) timeline.arrows.resize(kMostArrows);
  timeline.notes.push_back(absl::StrCat("Of ", all, " arrows only ", still_many ? "the first " : "those ",
                                        still_many ? absl::StrCat(kMostArrows, " ") : "", "to and from rank ", rank,
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
  std::array<bool, kKinds> used = {};
  for (DrawnRank& rank : drawn) {
    for (const Bar& bar : rank.lane.bars) {
      for (const BarShare& share : bar.shares) used[static_cast<std::size_t>(share.kind)] = true;
    }
    timeline.mapped = timeline.mapped || rank.mapped;
    timeline.lanes.push_back(std::move(rank.lane));
  }
  for (std::size_t k = 0; k < kKinds; ++k) {
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

std::string BytesInWords(std::int64_t bytes) {
  if (bytes < 1024) return absl::StrCat(bytes, bytes == 1 ? " byte" : " bytes");
  auto size = static_cast<double>(bytes);
  std::size_t unit = 0;
  constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  while (size >= 1023.5) {  // what would be rounded to 1024 is 1 of the next unit
    size /= 1024;
    ++unit;
  }
  const std::string digits = size < 10 ? absl::StrFormat("%.1f", size) : absl::StrFormat("%.0f", size);
  return absl::StrCat(absl::EndsWith(digits, ".0") ? digits.substr(0, digits.size() - 2) : digits, " ", kUnits[unit]);
}

}  // namespace tutti::cli
