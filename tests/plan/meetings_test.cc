#include "plan/meetings.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/harness/native_machine.h"
#include "tutti/algorithm.h"

namespace tutti {
namespace {

using Groups = std::vector<std::vector<Rank>>;

// Two leaders and their nodes: in the order of the plans of all ranks, so that rank 1 makes the group of the leaders,
// for which rank 0 comes from its node, before that of its own node.
TEST(Meetings, GroupsComeInTheOrderOfThePlans) {
  std::vector<Plan> plans;
  for (Rank rank = 0; rank < 4; ++rank) {
    plans.push_back(BuildPlan(*ParseStrategy("gradient_allreduce:hierarchical=true"), DType::kF32, 100, rank, 4,
                              WithNative({.nodes = {0, 1, 0, 1}}), 0)
                        .value());
  }
  EXPECT_EQ(plans[1].groups, (Groups{{1, 3}, {0, 1}})) << "the order in which rank 1 uses them";
  EXPECT_EQ(GroupsOf(plans), (Groups{{0, 2}, {0, 1}, {1, 3}}));
  EXPECT_EQ(GroupsOf({plans.data() + 2, 1}), (Groups{{0, 2}}));
}

}  // namespace
}  // namespace tutti
