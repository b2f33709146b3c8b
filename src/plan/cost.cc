#include "tutti/cost.h"

#include <algorithm>
#include <queue>
#include <tuple>
#include <vector>

#include "plan/form.h"
#include "plan/order.h"

namespace tutti {
namespace {

bool Computes(const Step& step) { return step.num_dsts > 0 && step.num_srcs > 0; }

std::int64_t TouchedBytes(const Plan& plan, const Step& step) {
  std::int64_t bytes = 0;
  for (const Ref& ref : plan.dsts(step)) bytes += ref.bytes * (step.accumulate ? 2 : 1);
  for (const Ref& ref : plan.srcs(step)) bytes += ref.bytes;
  return bytes;
}

// Simulates all ranks, taking steps in the order in which they become ready.
class Player {
 public:
  Player(absl::Span<const Plan> plans, const Order& order, const CostModel& model)
      : order_(order), model_(model), ranks_(plans[0].size), end_(order.size()), arrival_(order.size()) {}

  double Play() {
    std::vector<std::size_t> missing(order_.size());
    std::vector<std::vector<Position>> after(order_.size());
    std::vector<double> ready(order_.size(), 0);
    using Entry = std::tuple<double, Position>;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue;
    for (Position at = 0; at < order_.size(); ++at) {
      missing[at] = order_.before(at).size();
      for (Position earlier : order_.before(at)) after[earlier].push_back(at);
      if (missing[at] == 0) queue.emplace(0, at);
    }
    double last = 0;
    while (!queue.empty()) {
      const auto [time, at] = queue.top();
      queue.pop();
      Take(at, time);
      last = std::max(last, end_[at]);
      for (Position next : after[at]) {
        // A Recv or Wait is posted early, so its message or signal counts from its arrival on.
        if (order_.source(next) != at) ready[next] = std::max(ready[next], end_[at]);
        if (--missing[next] == 0) queue.emplace(ready[next], next);
      }
    }
    return last;
  }

 private:
  struct RankState {
    double engine = 0, out = 0, in = 0;  // the times at which each is free again
  };

  const LinkModel& Link(Rank a, Rank b) const {
    const int node = model_.ranks_per_node;
    return node == 0 || a / node == b / node ? model_.within_node : model_.between_nodes;
  }

  void Take(Position at, double time) {
    const Plan& plan = order_.plan(at);
    const Step& step = order_.step(at);
    RankState& mine = ranks_[plan.rank];
    double busy = model_.step_s;
    if (Computes(step)) busy += static_cast<double>(TouchedBytes(plan, step)) / model_.memory_bytes_per_s;
    if (step.kind == StepKind::kRecv || step.kind == StepKind::kWait) {
      const Position source = order_.source(at);
      const double latency = step.kind == StepKind::kWait ? Link(step.peer, plan.rank).latency_s : 0;
      end_[at] = std::max(time + busy, arrival_[source] + latency);
      return;
    }
    const double start = std::max(time, mine.engine);
    mine.engine = end_[at] = arrival_[at] = start + busy;
    if (step.kind != StepKind::kSend) return;
    const LinkModel& link = Link(plan.rank, step.peer);
    RankState& theirs = ranks_[step.peer];
    const double transfer = static_cast<double>(plan.srcs(step)[0].bytes) / link.bytes_per_s;
    const double leaves = std::max(end_[at], mine.out);
    mine.out = end_[at] = leaves + transfer;
    theirs.in = arrival_[at] = std::max(leaves + link.latency_s, theirs.in) + transfer;
  }

  const Order& order_;
  const CostModel& model_;
  std::vector<RankState> ranks_;
  std::vector<double> end_;      // by position
  std::vector<double> arrival_;  // arrival of each message or signal
};

}  // namespace

absl::StatusOr<Cost> CostOf(absl::Span<const Plan> plans, const CostModel& model) {
  if (absl::Status status = CheckForm(plans); !status.ok()) return status;
  const absl::StatusOr<Order> order = Order::Of(plans);
  if (!order.ok()) return order.status();
  Cost cost;
  for (const Plan& plan : plans) {
    std::int64_t messages = 0;
    std::int64_t memory = 0;
    for (const Step& step : plan.steps) {
      messages += step.kind == StepKind::kSend;
      if (Computes(step)) memory += TouchedBytes(plan, step);
    }
    cost.steps = std::max(cost.steps, static_cast<std::int64_t>(plan.steps.size()));
    cost.messages = std::max(cost.messages, messages);
    cost.wire_bytes = std::max(cost.wire_bytes, WireBytes(plan));
    cost.memory_bytes = std::max(cost.memory_bytes, memory);
  }
  cost.seconds = Player(plans, *order, model).Play();
  return cost;
}

}  // namespace tutti
