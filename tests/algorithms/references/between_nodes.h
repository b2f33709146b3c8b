#ifndef TUTTI_TESTS_ALGORITHMS_REFERENCES_BETWEEN_NODES_H_
#define TUTTI_TESTS_ALGORITHMS_REFERENCES_BETWEEN_NODES_H_

#include <algorithm>
#include <memory>
#include <utility>

#include "tests/algorithms/references/gradient_allreduce.h"

namespace tutti {

// The reference of hierarchical=true: a node takes the place of a rank, with the sum of its ranks' gradients or the
// average of their weights, and all its ranks get the result. The last node may have fewer ranks.
class BetweenNodesReference : public Reference {
 public:
  BetweenNodesReference(std::unique_ptr<Reference> algorithm, int ranks_per_node)
      : algorithm_(std::move(algorithm)), ranks_per_node_(ranks_per_node) {}

  void Gradients(int step, Ranks& gradients) override {
    ForNodes(gradients, /*average=*/false, [&](Ranks& nodes) { algorithm_->Gradients(step, nodes); });
  }
  void WeightsBeforeOptimizer(int step, Ranks& weights) override {
    ForNodes(weights, /*average=*/true, [&](Ranks& nodes) { algorithm_->WeightsBeforeOptimizer(step, nodes); });
  }
  void WeightsAfterOptimizer(int step, Ranks& weights) override {
    ForNodes(weights, /*average=*/true, [&](Ranks& nodes) { algorithm_->WeightsAfterOptimizer(step, nodes); });
  }

 private:
  // Ranks keep their values where the algorithm does not change those of their node.
  void ForNodes(Ranks& values, bool average, const std::function<void(Ranks&)>& exchange) const {
    Ranks nodes;
    for (auto first = values.begin(); first != values.end();) {
      const auto end = first + std::min<std::ptrdiff_t>(ranks_per_node_, values.end() - first);
      nodes.push_back(SumInOrder(Ranks(first, end), average ? static_cast<int>(end - first) : 1));
      first = end;
    }
    const Ranks before = nodes;
    exchange(nodes);
    if (nodes == before) return;
    for (std::size_t rank = 0; rank < values.size(); ++rank) {
      values[rank] = nodes[rank / static_cast<std::size_t>(ranks_per_node_)];
    }
  }

  const std::unique_ptr<Reference> algorithm_;
  const int ranks_per_node_;
};

}  // namespace tutti

#endif  // TUTTI_TESTS_ALGORITHMS_REFERENCES_BETWEEN_NODES_H_
