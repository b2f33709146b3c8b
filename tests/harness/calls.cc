#include "tests/harness/calls.h"

#include <set>

#include "absl/strings/str_cat.h"

namespace tutti {
namespace {

// The elements that `from` sends to `to` in an all_to_all_v: unequal counts, some of which are 0.
std::int64_t SentBetween(Rank from, Rank to, std::int64_t count) { return (from + 2 * to) % 3 * count; }

WorldCall AllToAllV(const CollectiveSpec& spec, std::int64_t count, int size) {
  WorldCall call;
  for (Rank rank = 0; rank < size; ++rank) {
    CollectiveSpec mine = spec;
    mine.count = 0;
    for (Rank peer = 0; peer < size; ++peer) {
      mine.send_counts.push_back(SentBetween(rank, peer, count));
      mine.recv_counts.push_back(SentBetween(peer, rank, count));
    }
    call.ranks.push_back(rank);
    call.specs.push_back(mine);
  }
  return call;
}

WorldCall PointToPoint(const CollectiveSpec& spec, int size) {
  const Rank sender = 0;
  const Rank receiver = size - 1;
  WorldCall call{.ranks = {sender, receiver}, .specs = {spec, spec}};
  call.specs[0].collective = Collective::kSend;
  call.specs[0].root = receiver;
  call.specs[1].collective = Collective::kRecv;
  call.specs[1].root = sender;
  return call;
}

}  // namespace

std::string WorldCall::text() const { return absl::StrCat(ToString(specs[0]), " by ", ranks.size(), " ranks"); }

std::vector<WorldCall> CallsOf(Collective collective, DType dtype, ReduceOp op, std::int64_t count, int size) {
  CollectiveSpec spec{.collective = collective, .dtype = dtype, .op = op, .count = count};
  if (collective == Collective::kSend || collective == Collective::kRecv) {
    if (size < 2) return {};
    return {PointToPoint(spec, size)};
  }
  if (collective == Collective::kAllToAllV) return {AllToAllV(spec, count, size)};
  if (collective == Collective::kBarrier) spec.count = 0;
  std::vector<WorldCall> calls;
  for (Rank root : std::set<Rank>{0, size / 2, size - 1}) {
    if (root > 0 && !HasRoot(collective)) break;
    for (bool in_place : {false, true}) {
      spec.root = root;
      spec.in_place = in_place;
      if (!Validate(spec, 0, size).ok()) continue;
      WorldCall call;
      for (Rank rank = 0; rank < size; ++rank) {
        call.ranks.push_back(rank);
        call.specs.push_back(spec);
      }
      calls.push_back(call);
    }
  }
  return calls;
}

std::vector<std::vector<int>> NodesFor(const Schedule& schedule, int size) {
  const CollectiveSpec probe{.collective = schedule.collective, .count = 1};
  const bool is_for_nodes = schedule.supports(probe, 4, {.peers_mapped = true, .nodes = {0, 0, 1, 1}}).ok() &&
                            !schedule.supports(probe, 4, {.peers_mapped = true}).ok();
  if (!is_for_nodes) return {{}};
  std::vector<std::vector<int>> all;
  for (int places = 2; places < size; ++places) {
    if (size % places != 0) continue;
    std::vector<int>& in_order = all.emplace_back();
    for (Rank rank = 0; rank < size; ++rank) in_order.push_back(rank / places);
    std::vector<int>& by_turns = all.emplace_back();
    for (Rank rank = 0; rank < size; ++rank) by_turns.push_back(rank % (size / places));
  }
  return all;
}

absl::StatusOr<std::vector<Plan>> PlansOf(const Schedule& schedule, const WorldCall& call, int size,
                                          const PlanOptions& options) {
  std::vector<Plan> plans;
  for (std::size_t i = 0; i < call.ranks.size(); ++i) {
    absl::StatusOr<const Schedule*> used = &schedule;
    if (call.specs[i].collective != schedule.collective) {
      used = FindSchedule(call.specs[i].collective, schedule.name);
    }
    if (!used.ok()) return used.status();
    absl::StatusOr<Plan> plan = BuildPlan(**used, call.specs[i], call.ranks[i], size, options);
    if (!plan.ok()) return plan.status();
    plans.push_back(*std::move(plan));
  }
  return plans;
}

}  // namespace tutti
