#ifndef TUTTI_TESTS_ALGORITHMS_REFERENCES_BETWEEN_NODES_H_
#define TUTTI_TESTS_ALGORITHMS_REFERENCES_BETWEEN_NODES_H_

#include <memory>
#include <utility>

#include "tests/algorithms/references/gradient_allreduce.h"

namespace tutti {

// Every node does with the average of its ranks what an algorithm does with the values of one rank, and all its ranks
// get the result.
class BetweenNodesReference : public Reference {
 public:
  BetweenNodesReference(std::unique_ptr<Reference> algorithm, int ranks_per_node)
      : algorithm_(std::move(algorithm)), ranks_per_node_(ranks_per_node) {}

  void Gradients(int step, Ranks& gradients) override {
    ForNodes(gradients, [&](Ranks& nodes) { algorithm_->Gradients(step, nodes); });
  }
  void WeightsBeforeOptimizer(int step, Ranks& weights) override {
    ForNodes(weights, [&](Ranks& nodes) { algorithm_->WeightsBeforeOptimizer(step, nodes); });
  }
  void WeightsAfterOptimizer(int step, Ranks& weights) override {
    ForNodes(weights, [&](Ranks& nodes) { algorithm_->WeightsAfterOptimizer(step, nodes); });
  }

 private:
  // Ranks keep what they have where the algorithm leaves the nodes' averages alone.
  void ForNodes(Ranks& values, const std::function<void(Ranks&)>& exchange) const {
    Ranks averages;
    for (auto first = values.begin(); first != values.end(); first += ranks_per_node_) {
      const Ranks node(first, first + ranks_per_node_);
      averages.push_back(SumInOrder(node, ranks_per_node_));
    }
    const Ranks before = averages;
    exchange(averages);
    if (averages == before) return;
    for (std::size_t rank = 0; rank < values.size(); ++rank)
      values[rank] = averages[rank / static_cast<std::size_t>(ranks_per_node_)];
  }

  const std::unique_ptr<Reference> algorithm_;
  const int ranks_per_node_;
};

}  // namespace tutti

#endif  // TUTTI_TESTS_ALGORITHMS_REFERENCES_BETWEEN_NODES_H_
