#include "bindings/cli/plan/phases.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace tutti::cli {
namespace {

// Steps from this share of the whole time on are never drawn together with steps of other kinds.
constexpr double kGrain = 1.0 / 60;
// Shorter steps are drawn together, until they take kFolded, where they are shorter than kShort on average.
constexpr double kShort = kGrain / 3;
constexpr double kFolded = 5 * kGrain;
// So many short steps in a row, none of them like another, are drawn one by one.
constexpr std::size_t kFewSteps = 5;
// Neighbours whose shares differ by more in sum are different phases of a plan.
constexpr double kAlike = 0.3;

// Whether `next` goes on with what a rank does in `phase`.
bool GoesOn(const Phase& phase, const Phase& next) {
  bool is_same = phase.is_uniform() && next.is_uniform();
  for (std::size_t k = 0; is_same && k < kStepKinds; ++k) {
    is_same = phase.kinds[k].peer == next.kinds[k].peer && (phase.kinds[k].steps > 0) == (next.kinds[k].steps > 0);
  }
  if (is_same) return true;
  if (!phase.is_short || !next.is_short) return false;
  double difference = 0;
  for (std::size_t k = 0; k < kStepKinds; ++k) {
    difference += std::abs(phase.part(k) - next.part(k));
    const bool both = phase.kinds[k].steps > 0 && next.kinds[k].steps > 0;
    if (both && phase.kinds[k].peer != next.kinds[k].peer) return false;
  }
  return difference <= kAlike;
}

// " to 3", " from 2": the other end of a message; empty for other steps.
std::string OtherEnd(StepKind kind, Rank peer) {
  if (kind != StepKind::kSend && kind != StepKind::kRecv) return "";
  if (peer == Phase::kSeveral) return "";
  return absl::StrCat(kind == StepKind::kSend ? " to " : " from ", peer == kAnySource ? "any" : absl::StrCat(peer));
}

}  // namespace

void Phase::Add(const Phase& next) {
  begin = steps.empty() ? next.begin : begin;
  end = next.end;
  is_short = is_short && next.is_short;
  steps.insert(steps.end(), next.steps.begin(), next.steps.end());
  for (std::size_t k = 0; k < kStepKinds; ++k) {
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

double Phase::part(std::size_t kind) const {
  if (length() > 0) return kinds[kind].seconds / length();
  return static_cast<double>(kinds[kind].steps) / static_cast<double>(steps.size());
}

bool Phase::is_uniform() const {
  const auto used = [](const OfKind& of) { return of.steps > 0; };
  const auto first = std::find_if(kinds.begin(), kinds.end(), used);
  return std::count_if(kinds.begin(), kinds.end(), used) == 1 && first->peer != kSeveral;
}

bool Phase::is_folded(double seconds) const {
  if (steps.size() == 1) return false;
  if (is_uniform()) return true;
  if (length() >= seconds * kShort * static_cast<double>(steps.size())) return false;
  return steps.size() > kFewSteps ||
         std::any_of(kinds.begin(), kinds.end(), [](const OfKind& of) { return of.steps > 1; });
}

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
    one.is_short = one.length() < grain;
    one.steps = {id};
    const std::int64_t bytes = BytesOf(plan, step);
    one.kinds[static_cast<std::size_t>(step.kind)] = {
        .steps = 1, .seconds = one.length(), .least = bytes, .most = bytes, .peer = step.peer};
    if (!one.is_short || (!open.steps.empty() && one.begin - open.end >= grain)) close();
    if (!one.is_short) {
      append(std::move(one));
      continue;
    }
    open.Add(one);
    if (open.length() >= seconds * kFolded) close();
  }
  close();
  return phases;
}

std::vector<std::string> LabelsOf(const Plan& plan, const Step& step) {
  const std::string name(Name(step.kind));
  const std::string size = BytesInWords(BytesOf(plan, step));
  const std::string mapped = IsMapped(plan, step) ? ", mapped" : "";
  switch (step.kind) {
    case StepKind::kSignal:
      return {name};
    case StepKind::kReduce:
    case StepKind::kCombine:
      return {absl::StrCat(name, " ", step.num_srcs, " × ", size, mapped), name};
    case StepKind::kEncode:
    case StepKind::kDecode:
      return {absl::StrCat(name, " ", BytesInWords(plan.srcs(step)[0].bytes), " to ", size), name};
    case StepKind::kNative:
      return {absl::StrCat(name, " ", Name(step.collective), " ", size), name};
    default:
      return {absl::StrCat(name, " ", size, OtherEnd(step.kind, step.peer), mapped), name};
  }
}

std::vector<std::string> LabelsOf(const Plan& plan, const Phase& phase) {
  std::vector<std::string> full, brief;
  for (std::size_t k = 0; k < kStepKinds; ++k) {
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
    if (all.least == all.most) full[0] = absl::StrCat(all.steps, " × ", LabelsOf(plan, step)[0]);
  }
  return {absl::StrJoin(full, ", "), absl::StrJoin(brief, ", "), absl::StrCat(phase.steps.size(), " steps"),
          absl::StrCat("×", phase.steps.size())};
}

std::int64_t BytesOf(const Plan& plan, const Step& step) {
  if (step.num_dsts > 0) return plan.dsts(step)[0].bytes;
  return step.num_srcs > 0 ? plan.srcs(step)[0].bytes : 0;
}

bool IsMapped(const Plan& plan, const Step& step) {
  const absl::Span<const Ref> refs(plan.refs.data() + step.first_ref, std::size_t{step.num_dsts} + step.num_srcs);
  return std::any_of(refs.begin(), refs.end(), [](const Ref& ref) { return ref.owner != kSelf; });
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
