#include "plan/stream_order.h"

#include <algorithm>
#include <compare>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "plan/meetings.h"
#include "tutti/print.h"

namespace tutti {
namespace {

constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

// When a step may be launched: after the launches of messages with smaller numbers, and within the same number after
// the steps that compute what it needs. Messages come last in their number.
struct Time {
  std::uint32_t number = 0;
  std::uint32_t depth = 0;

  auto operator<=>(const Time&) const = default;
};

bool IsMessage(const Step& step) { return step.kind == StepKind::kSend || step.kind == StepKind::kRecv; }
// Whether the launch of the step ends only when other ranks have launched theirs.
bool Meets(const Step& step) { return IsMessage(step) || step.kind == StepKind::kNative; }

// The steps of all ranks as a graph whose nodes are steps that compute, messages, each with its Send and its Recv, and
// native collectives, each with the steps of all its ranks.
class Graph {
 public:
  explicit Graph(absl::Span<const Plan> plans) : plans_(plans) {}

  absl::Status Make() {
    if (absl::Status status = MakeNodes(); !status.ok()) return status;
    MakeEdges();
    return Sort();
  }
  const Time& time(std::size_t plan, StepId step) const { return times_[node_of_[plan][step]]; }

 private:
  struct Edge {
    std::uint32_t from;
    std::uint32_t to;
    bool in_order_only;  // the two messages may travel at the same time
  };

  std::string Describe(std::size_t plan, StepId step) const {
    return absl::StrCat("rank ", plans_[plan].rank, " step ", step, " (",
                        ToText(plans_[plan], plans_[plan].steps[step]), ")");
  }

  absl::Status MakeNodes();
  void MakeEdges();
  absl::Status Sort();
  // The time of a step that may follow `node`, as far as `node` says.
  Time After(std::uint32_t node, bool then_computes) const {
    const Time& time = times_[node];
    if (meets_[node]) return {time.number + 1, 0};
    return {time.number, then_computes ? time.depth + 1 : 0};
  }

  absl::Span<const Plan> plans_;
  std::vector<std::vector<std::uint32_t>> node_of_;         // by plan and step
  std::vector<bool> meets_;                                 // by node: whether steps of several ranks meet in it
  std::vector<std::pair<std::size_t, StepId>> first_step_;  // by node: a step of it, for errors
  std::vector<Edge> edges_;
  std::vector<Time> times_;
};

// A native collective is one node, and so is a message: the step that comes first in `plans` makes the node, and the
// partner joins it.
absl::Status Graph::MakeNodes() {
  using Key = std::tuple<Rank, Rank, std::uint32_t>;  // from, to, ordinal
  struct Half {
    std::uint32_t node;
    StepKind kind;
  };
  absl::flat_hash_map<Key, Half> halves;
  for (const Plan& plan : plans_) node_of_.emplace_back(plan.steps.size(), kNone);
  for (const Meeting& meeting : MeetingsOf(plans_)) {
    if (absl::Status status = CheckMeeting(plans_, meeting); !status.ok()) return status;
    for (const PlanStep& at : meeting.steps)
      node_of_[at.plan][at.step] = static_cast<std::uint32_t>(first_step_.size());
    first_step_.emplace_back(meeting.steps[0].plan, meeting.steps[0].step);
    meets_.push_back(true);
  }
  for (std::size_t p = 0; p < plans_.size(); ++p) {
    const Plan& plan = plans_[p];
    for (StepId s = 0; s < plan.steps.size(); ++s) {
      const Step& step = plan.steps[s];
      if (step.kind == StepKind::kNative) continue;
      if (step.kind == StepKind::kSignal || step.kind == StepKind::kWait) {
        return absl::UnimplementedError(
            absl::StrCat(plan.name, ": ", Describe(p, s), " is for mapped memory, and ranks on streams map none"));
      }
      if (IsMessage(step)) {
        const bool sends = step.kind == StepKind::kSend;
        const Key key = {sends ? plan.rank : step.peer, sends ? step.peer : plan.rank, step.ordinal};
        const auto [half, is_new] =
            halves.try_emplace(key, Half{static_cast<std::uint32_t>(first_step_.size()), step.kind});
        if (!is_new) {
          if (half->second.kind == step.kind) {
            return absl::FailedPreconditionError(
                absl::StrCat(plan.name, ": ", Describe(p, s), ": another step of this rank has the same ordinal"));
          }
          node_of_[p][s] = half->second.node;
          halves.erase(half);
          continue;
        }
      }
      node_of_[p][s] = static_cast<std::uint32_t>(first_step_.size());
      first_step_.emplace_back(p, s);
      meets_.push_back(IsMessage(step));
    }
  }
  for (const auto& [key, half] : halves) {
    const auto& [plan, step] = first_step_[half.node];
    return absl::FailedPreconditionError(
        absl::StrCat(plans_[plan].name, ": ", Describe(plan, step), ": no step of the other rank is its partner"));
  }
  return absl::OkStatus();
}

void Graph::MakeEdges() {
  for (std::size_t p = 0; p < plans_.size(); ++p) {
    const Plan& plan = plans_[p];
    std::uint32_t last_native = kNone;  // a rank's native steps come one after the other
    // The messages to each peer, by ordinal.
    absl::flat_hash_map<Rank, std::vector<std::pair<std::uint32_t, std::uint32_t>>> channels;
    for (StepId s = 0; s < plan.steps.size(); ++s) {
      const Step& step = plan.steps[s];
      const std::uint32_t node = node_of_[p][s];
      for (const StepId dependency : plan.deps_of(step)) edges_.push_back({node_of_[p][dependency], node, false});
      // Both ranks would add the edges between messages of a channel: the sender does.
      if (step.kind == StepKind::kSend) channels[step.peer].emplace_back(step.ordinal, node);
      if (step.kind != StepKind::kNative) continue;
      if (last_native != kNone) edges_.push_back({last_native, node, false});
      last_native = node;
    }
    for (auto& [peer, messages] : channels) {
      std::sort(messages.begin(), messages.end());
      for (std::size_t i = 1; i < messages.size(); ++i) {
        edges_.push_back({messages[i - 1].second, messages[i].second, true});
      }
    }
  }
}

absl::Status Graph::Sort() {
  const std::size_t nodes = first_step_.size();
  std::vector<std::uint32_t> missing(nodes, 0);
  std::vector<std::uint32_t> first(nodes + 1, 0);
  for (const Edge& edge : edges_) {
    ++missing[edge.to];
    ++first[edge.from + 1];
  }
  for (std::size_t n = 0; n < nodes; ++n) first[n + 1] += first[n];
  std::vector<std::uint32_t> by_source(edges_.size());
  std::vector<std::uint32_t> fill(first.begin(), first.end() - 1);
  for (std::uint32_t e = 0; e < edges_.size(); ++e) by_source[fill[edges_[e].from]++] = e;

  times_.assign(nodes, Time());
  std::vector<std::uint32_t> sorted;
  sorted.reserve(nodes);
  for (std::uint32_t n = 0; n < nodes; ++n) {
    if (missing[n] == 0) sorted.push_back(n);
  }
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    for (std::uint32_t k = first[sorted[i]]; k < first[sorted[i] + 1]; ++k) {
      const Edge& edge = edges_[by_source[k]];
      const Time earliest =
          edge.in_order_only ? times_[edge.from] : After(edge.from, /*then_computes=*/!meets_[edge.to]);
      times_[edge.to] = std::max(times_[edge.to], earliest);
      if (--missing[edge.to] == 0) sorted.push_back(edge.to);
    }
  }
  if (sorted.size() == nodes) return absl::OkStatus();
  const auto stuck = static_cast<std::size_t>(
      std::find_if(missing.begin(), missing.end(), [](std::uint32_t m) { return m > 0; }) - missing.begin());
  const auto& [plan, step] = first_step_[stuck];
  return absl::FailedPreconditionError(
      absl::StrCat(plans_[plan].name, ": ", Describe(plan, step),
                   " waits in a circle where a message ends only when both of its ranks are there"));
}

// What the steps of one launch have in common.
using Launch = std::tuple<std::uint32_t, bool, std::uint32_t, StepKind>;

// The launches of one rank's steps, from the earliest times of these.
class Launches {
 public:
  Launches(const Graph& graph, std::size_t index, const Plan& plan) : plan_(plan) {
    for (StepId s = 0; s < plan.steps.size(); ++s) {
      times_.push_back(graph.time(index, s));
      if (!Meets(plan.steps[s])) last_ = std::max(last_, times_[s].number);
    }
    MoveLonelySteps();
    SetDepths();
  }

  // Messages between two ranks are launched by their ordinals.
  Launch of(StepId s) const {
    const Step& step = plan_.steps[s];
    return {times_[s].number, Meets(step), times_[s].depth, IsMessage(step) ? StepKind::kSend : step.kind};
  }

 private:
  // A step that computes, and would be a launch of its own, waits for steps of its kind that come after later messages,
  // as far as nobody needs it before: a stream does nothing else in between.
  void MoveLonelySteps() {
    std::map<Launch, int> sizes;
    for (StepId s = 0; s < plan_.steps.size(); ++s) ++sizes[of(s)];
    std::vector<std::uint32_t> latest(plan_.steps.size(), last_);
    for (StepId s = static_cast<StepId>(plan_.steps.size()); s-- > 0;) {
      const Step& step = plan_.steps[s];
      const Launch joined = {latest[s], false, 0, step.kind};
      const auto others = sizes.find(joined);
      const bool moves = !Meets(step) && latest[s] > times_[s].number && sizes[of(s)] == 1 && others != sizes.end() &&
                         others->second > 0;
      if (moves) {
        --sizes[of(s)];
        ++others->second;
        times_[s] = {latest[s], 0};
      }
      for (const StepId dependency : plan_.deps_of(step)) {
        latest[dependency] = std::min(latest[dependency], times_[s].number);
      }
    }
  }

  void SetDepths() {
    for (StepId s = 0; s < plan_.steps.size(); ++s) {
      times_[s].depth = 0;
      if (Meets(plan_.steps[s])) continue;
      for (const StepId dependency : plan_.deps_of(plan_.steps[s])) {
        const bool same = !Meets(plan_.steps[dependency]) && times_[dependency].number == times_[s].number;
        if (same) times_[s].depth = std::max(times_[s].depth, times_[dependency].depth + 1);
      }
    }
  }

  const Plan& plan_;
  std::vector<Time> times_;  // by step
  std::uint32_t last_ = 0;   // the number of the last steps that compute
};

// The steps sorted by the launches that `of` names.
template <typename LaunchOf>
StreamOrder SortedBy(const Plan& plan, const LaunchOf& of) {
  StreamOrder order;
  order.steps.resize(plan.steps.size());
  for (StepId s = 0; s < plan.steps.size(); ++s) order.steps[s] = s;
  std::sort(order.steps.begin(), order.steps.end(), [&](StepId a, StepId b) {
    return std::tuple(of(a), plan.steps[a].ordinal, a) < std::tuple(of(b), plan.steps[b].ordinal, b);
  });
  for (std::size_t i = 1; i <= order.steps.size(); ++i) {
    const bool ends = i == order.steps.size() || of(order.steps[i]) != of(order.steps[i - 1]);
    if (ends) order.launches.push_back(i);
  }
  return order;
}

}  // namespace

absl::StatusOr<std::vector<StreamOrder>> StreamOrdersOf(absl::Span<const Plan> plans) {
  Graph graph(plans);
  if (absl::Status status = graph.Make(); !status.ok()) return status;
  std::vector<StreamOrder> orders;
  for (std::size_t p = 0; p < plans.size(); ++p) {
    const Launches launches(graph, p, plans[p]);
    orders.push_back(SortedBy(plans[p], [&](StepId s) { return launches.of(s); }));
  }
  return orders;
}

absl::StatusOr<StreamOrder> StreamOrderAlone(const Plan& plan) {
  // The messages have the number 0, steps that need none of them too, and come before them; all others have 1.
  std::vector<Launch> launches;
  for (const Step& step : plan.steps) {
    Launch& launch = launches.emplace_back(0, IsMessage(step), 0, IsMessage(step) ? StepKind::kSend : step.kind);
    auto& [number, meets, depth, kind] = launch;
    bool needs_message = false;
    for (const StepId dependency : plan.deps_of(step)) {
      const Launch& before = launches[dependency];
      needs_message |= std::get<0>(before) > 0 || std::get<1>(before);
    }
    const bool is_for_all_ranks = step.kind == StepKind::kNative || step.kind == StepKind::kSignal ||
                                  step.kind == StepKind::kWait || (meets && needs_message);
    if (is_for_all_ranks) {
      return absl::UnimplementedError(absl::StrCat(
          plan.name, ": rank ", plan.rank, " step ", launches.size() - 1, " (", ToText(plan, step),
          ") needs the plans of all ranks, which no rank knows here: on a stream all messages must travel at once"));
    }
    number = needs_message ? 1 : 0;
    if (meets) continue;
    for (const StepId dependency : plan.deps_of(step)) {
      const Launch& before = launches[dependency];
      if (!std::get<1>(before) && std::get<0>(before) == number) depth = std::max(depth, std::get<2>(before) + 1);
    }
  }
  return SortedBy(plan, [&](StepId s) { return launches[s]; });
}

}  // namespace tutti
