// Algorithms between nodes: each node acts as one rank, for which its first rank, the leader, exchanges.
#ifndef TUTTI_PLAN_HIERARCHY_H_
#define TUTTI_PLAN_HIERARCHY_H_

#include <vector>

#include "absl/status/status.h"
#include "tutti/algorithm.h"
#include "tutti/plan_builder.h"

namespace tutti {

// The ranks of each node. Nodes are in order of their first ranks, which lead them.
class Hierarchy {
 public:
  Hierarchy(const PlanOptions& options, int size);

  int nodes() const { return static_cast<int>(ranks_.size()); }
  const std::vector<Rank>& ranks(int node) const { return ranks_[node]; }
  int node_of(Rank rank) const { return node_of_[rank]; }
  std::vector<Rank> leaders() const;
  // Whether all nodes have equally many ranks.
  bool even() const;

 private:
  std::vector<std::vector<Rank>> ranks_;
  std::vector<int> node_of_;
};

// Whether the strategy runs between leaders of nodes.
bool IsBetweenNodes(const Strategy& strategy, const PlanOptions& options);

// Writes one round of the strategy between leaders. Unimplemented when weights are to be mixed and nodes have different
// numbers of ranks, because the mix would favour ranks of small nodes.
absl::Status BuildBetweenNodes(const Strategy& strategy, int round, const Hierarchy& hierarchy, PlanBuilder& b);

}  // namespace tutti

#endif  // TUTTI_PLAN_HIERARCHY_H_
