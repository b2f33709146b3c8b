// hierarchical=true on nodes of two ranks, against loops over all nodes.
#include "tests/algorithms/references/between_nodes.h"
#include "tests/algorithms/references/bytegrad.h"
#include "tests/algorithms/references/comparison.h"
#include "tests/algorithms/references/decentralized.h"
#include "tests/algorithms/references/low_precision_decentralized.h"

namespace tutti {
namespace {

constexpr int kFewSteps = 15;
constexpr int kRanksPerNode = 2;  // halving is exact: codecs see the same numbers whether nodes add or average

struct Case {
  std::string strategy;
  std::function<std::unique_ptr<Reference>(int nodes, const Floats& initial)> between;
};

std::vector<Case> Cases() {
  const auto bytegrad = [](bool error_feedback) {
    return [=](int nodes, const Floats& initial) {
      return std::make_unique<ByteGradReference>(nodes, initial.size(), Codec8Bit(), error_feedback);
    };
  };
  const auto decentralized = [](const std::string& selection) {
    return [=](int, const Floats&) { return std::make_unique<DecentralizedReference>(selection, 1); };
  };
  return {
      {"gradient_allreduce:hierarchical=true",
       [](int, const Floats&) { return std::make_unique<GradientAllReduceReference>(); }},
      {"bytegrad", bytegrad(false)},
      {"bytegrad:error_feedback=true", bytegrad(true)},
      {"decentralized", decentralized("all")},
      {"decentralized:peer_selection_mode=ring", decentralized("ring")},
      {"decentralized:peer_selection_mode=shift_one", decentralized("shift_one")},
      {"low_precision_decentralized",
       [](int nodes, const Floats& initial) {
         constexpr std::size_t kOneSegment = 1 << 20;
         return std::make_unique<LowPrecisionDecentralizedReference>(nodes, initial, Codec8Bit(), kOneSegment, 1);
       }},
  };
}

void ExpectTrainsAsBetweenNodes(const Case& test, int nodes, const std::string& transport) {
  Training training = RandomTraining(test.strategy, nodes * kRanksPerNode, kFewSteps);
  training.world.transport = transport;
  training.world.ranks_per_node = kRanksPerNode;
  ExpectTrainsAs(
      training,
      [&](const Floats& initial) {
        return std::make_unique<BetweenNodesReference>(test.between(nodes, initial), kRanksPerNode);
      },
      kOrderOfFiftySums);
}

TEST(BetweenNodesTraining, EqualsItsReference) {
  for (const Case& test : Cases()) {
    for (const int nodes : {2, 3, 4}) ExpectTrainsAsBetweenNodes(test, nodes, "inproc");
  }
}

TEST(BetweenNodesTraining, EqualsItsReferenceOverEveryTransport) {
  for (const std::string& transport : WorldTransports()) {
    for (const Case& test : Cases()) ExpectTrainsAsBetweenNodes(test, 2, transport);
  }
}

}  // namespace
}  // namespace tutti
