// Algorithms between nodes: one rank of each node, its leader, speaks for all of its ranks.
#ifndef TUTTI_PLAN_HIERARCHY_H_
#define TUTTI_PLAN_HIERARCHY_H_

#include <vector>

#include "absl/status/status.h"
#include "tutti/algorithm.h"
#include "tutti/plan_builder.h"

namespace tutti {

// The ranks of each node, in order of their first ranks, which lead them.
class Hierarchy {
 public:
  Hierarchy(const PlanOptions& options, int size);

  int nodes() const { return static_cast<int>(ranks_.size()); }
  const std::vector<Rank>& ranks(int node) const { return ranks_[node]; }
  int node_of(Rank rank) const { return node_of_[rank]; }
  std::vector<Rank> leaders() const;
  // All nodes have equally many ranks.
  bool even() const;

 private:
  std::vector<std::vector<Rank>> ranks_;
  std::vector<int> node_of_;
};

// Whether the strategy runs between the leaders of nodes.
bool IsBetweenNodes(const Strategy& strategy, const PlanOptions& options);

// Writes one round of the strategy between leaders. Unimplemented when weights are to be mixed and not all nodes have
// equally many ranks: the mix would favour some.
absl::Status BuildBetweenNodes(const Strategy& strategy, int round, const Hierarchy& hierarchy, PlanBuilder& b);

}  // namespace tutti

#endif  // TUTTI_PLAN_HIERARCHY_H_
