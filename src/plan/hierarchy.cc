#include "plan/hierarchy.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tutti/selector.h"

namespace tutti {
namespace {

// The type in which a node adds up `dtype`: f32 for 16-bit types, so that nothing is lost inside the node.
DType LosslessType(DType dtype) { return dtype == DType::kF16 || dtype == DType::kBF16 ? DType::kF32 : dtype; }

// Writes the call `spec` inside the node. Some schedule serves `spec` for every count, type and size, by messages if
// need be.
void WithinNode(PlanBuilder& b, const std::vector<Rank>& node, const CollectiveSpec& spec, const Ref& in,
                const Ref& out) {
  const auto place = static_cast<Rank>(std::find(node.begin(), node.end(), b.rank()) - node.begin());
  const int size = static_cast<int>(node.size());
  b.WithinGroup(node, spec, in.Elements(0, InputCount(spec, place, size)),
                out.Elements(0, OutputCount(spec, place, size)), BuildSelected);
}

// The share of each rank in a mix of `nodes`, in which a node's weights are the average of its ranks' weights.
std::vector<double> PartsOfRanks(const std::vector<double>& nodes, const Hierarchy& hierarchy, int size) {
  std::vector<double> parts(size);
  for (Rank rank = 0; rank < size; ++rank) {
    const int node = hierarchy.node_of(rank);
    parts[rank] = nodes[node] / static_cast<double>(hierarchy.ranks(node).size());
  }
  return parts;
}

}  // namespace

Hierarchy::Hierarchy(const PlanOptions& options, int size) : node_of_(size) {
  std::vector<int> seen;
  for (Rank rank = 0; rank < size; ++rank) {
    const int node = options.nodes.empty() ? 0 : options.nodes[rank];
    const auto found = std::find(seen.begin(), seen.end(), node);
    node_of_[rank] = static_cast<int>(found - seen.begin());
    if (found == seen.end()) {
      seen.push_back(node);
      ranks_.emplace_back();
    }
    ranks_[node_of_[rank]].push_back(rank);
  }
}

std::vector<Rank> Hierarchy::leaders() const {
  std::vector<Rank> leaders;
  for (const std::vector<Rank>& node : ranks_) leaders.push_back(node[0]);
  return leaders;
}

bool Hierarchy::even() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [&](const auto& node) { return node.size() == ranks_[0].size(); });
}

bool PlanOptions::has_hierarchy() const {
  if (one_node()) return false;
  std::vector<int> numbers = nodes;
  std::sort(numbers.begin(), numbers.end());
  return std::adjacent_find(numbers.begin(), numbers.end()) != numbers.end();
}

absl::Status PlanOptions::Check(int size) const {
  if (segment_bytes < kMinSegmentBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("options.segment_bytes ", segment_bytes, " must be ", kMinSegmentBytes, " or more"));
  }
  if (nodes.empty() || nodes.size() == static_cast<std::size_t>(size)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("options.nodes names the nodes of ", nodes.size(), " ranks, not of ", size));
}

bool IsBetweenNodes(const Strategy& strategy, const PlanOptions& options) {
  return strategy.has("hierarchical") && strategy.flag("hierarchical") && options.has_hierarchy();
}

absl::Status BuildBetweenNodes(const Strategy& strategy, int round, const Hierarchy& hierarchy, PlanBuilder& b) {
  const CollectiveSpec bucket = b.spec();
  const std::vector<Rank>& node = hierarchy.ranks(hierarchy.node_of(b.rank()));
  const bool leads = node[0] == b.rank();
  const std::vector<double> mixing = MixingOf(strategy, round, hierarchy.node_of(b.rank()), hierarchy.nodes());
  if (!mixing.empty() && !hierarchy.even()) {
    return absl::UnimplementedError(
        "hierarchical=true mixes the averages of nodes, which then must have equally many ranks; use "
        "hierarchical=false");
  }

  const DType dtype = LosslessType(bucket.dtype);
  const bool widens = dtype != bucket.dtype;
  const Ref mine = widens ? b.Scratch(dtype, bucket.count) : b.in();
  b.Copy(mine, b.in());
  // Where the leader puts the sum of its node: over its own input if that holds gradients; a snapshot of weights must
  // keep its values.
  const bool in_place = mine.space != Space::kIn;
  const Ref nodes = in_place || node.size() == 1 ? mine : b.Scratch(dtype, leads ? bucket.count : 0);
  if (node.size() > 1) {
    WithinNode(b, node,
               {.collective = Collective::kReduce,
                .dtype = dtype,
                .op = ReduceOp::kSum,
                .count = bucket.count,
                .in_place = in_place},
               mine, nodes);
  }
  if (leads) {
    if (!mixing.empty() && node.size() > 1) b.Scale(nodes, nodes, static_cast<std::int32_t>(node.size()));
    CollectiveSpec between = bucket;
    between.dtype = dtype;
    const Ref result = bucket.in_place ? nodes : widens ? b.Scratch(dtype, bucket.count) : b.out();
    b.WithinGroup(hierarchy.leaders(), between, nodes, result,
                  [&](PlanBuilder& part) { strategy.algorithm->build(strategy, round, part); });
    b.Copy(b.out(), result);
  }
  if (node.size() > 1) {
    WithinNode(b, node,
               {.collective = Collective::kBroadcast, .dtype = bucket.dtype, .count = bucket.count, .in_place = true},
               b.out(), b.out());
  }
  if (!mixing.empty()) b.PromiseMixing(PartsOfRanks(mixing, hierarchy, b.size()), b.options().nodes);
  return absl::OkStatus();
}

}  // namespace tutti
