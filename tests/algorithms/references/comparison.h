// Compares weights that the library trained with those of a reference.
#ifndef TUTTI_TESTS_ALGORITHMS_REFERENCES_COMPARISON_H_
#define TUTTI_TESTS_ALGORITHMS_REFERENCES_COMPARISON_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tests/algorithms/references/reference.h"
#include "tests/harness/sweeps.h"

namespace tutti {

inline std::vector<int> WorldSizes() { return SweptWorlds({1, 2, 3, 4, 5, 8}); }
inline constexpr int kSteps = Repetitions(50);

// How much weights may differ, in parts of their size: not at all; as much as another order of summing the gradients
// changes; and as much as another order of summing the weights themselves changes in 50 steps.
inline constexpr float kToTheBit = 0;
inline constexpr float kOrderOfSums = 1e-6f;
inline constexpr float kOrderOfFiftySums = 4e-6f;

// Describes the first weight that differs, after the first step in which one does; "" when none differs.
inline std::string FirstDifference(const History& trained, const History& expected, float precision) {
  for (std::size_t step = 0; step < expected.size(); ++step) {
    for (std::size_t rank = 0; rank < expected[step].size(); ++rank) {
      const Floats& is = trained[step][rank];
      const Floats& should = expected[step][rank];
      if (is.size() != should.size()) return "step " + std::to_string(step) + ": weights are missing";
      for (std::size_t i = 0; i < should.size(); ++i) {
        const float slack = precision * std::max(1.0f, std::abs(should[i]));
        if (std::abs(is[i] - should[i]) <= slack) continue;
        return "step " + std::to_string(step) + ", rank " + std::to_string(rank) + ", weight " + std::to_string(i) +
               " is " + std::to_string(is[i]) + ", expected " + std::to_string(should[i]) + ", off by " +
               std::to_string(is[i] - should[i]);
      }
    }
  }
  return "";
}

inline void ExpectTrainsAs(const Training& training, const MakeReference& make, float precision = kToTheBit) {
  EXPECT_EQ(FirstDifference(Train(training), TrainByReference(training, make), precision), "")
      << training.strategy << ", " << training.size() << " ranks, " << training.world.transport;
}

// Options of a world whose ranks send messages instead of reading mapped memory.
inline WorldOptions Messages() {
  WorldOptions world;
  world.communicator.mapping = CommunicatorOptions::Mapping::kNever;
  return world;
}

}  // namespace tutti

#endif  // TUTTI_TESTS_ALGORITHMS_REFERENCES_COMPARISON_H_
