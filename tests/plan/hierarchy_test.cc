// Algorithms between nodes: who exchanges with whom, and what is refused.
#include "plan/hierarchy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace tutti {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Hierarchy, OrdersNodesByTheirFirstRanks) {
  const Hierarchy hierarchy({.nodes = {5, 2, 5, 2, 9}}, 5);
  EXPECT_EQ(hierarchy.nodes(), 3);
  EXPECT_THAT(hierarchy.leaders(), ElementsAre(0, 1, 4));
  EXPECT_THAT(hierarchy.ranks(0), ElementsAre(0, 2));
  EXPECT_EQ(hierarchy.node_of(3), 1);
  EXPECT_FALSE(hierarchy.even());
  EXPECT_TRUE(Hierarchy({}, 3).even());
}

absl::StatusOr<Plan> PlanOf(const std::string& strategy, Rank rank, const std::vector<int>& nodes) {
  return BuildPlan(*ParseStrategy(strategy), DType::kF32, 4096, rank, static_cast<int>(nodes.size()), {.nodes = nodes});
}

// Leaders send 8 bits per element between nodes; inside a node f32 is sent.
TEST(BetweenNodes, OnlyLeadersEncode) {
  for (Rank rank = 0; rank < 4; ++rank) {
    const absl::StatusOr<Plan> plan = PlanOf("bytegrad", rank, {0, 0, 1, 1});
    ASSERT_TRUE(plan.ok()) << plan.status();
    const Rank leader = rank < 2 ? 0 : 2;
    EXPECT_EQ(plan->codecs.empty(), rank != leader);
    for (const Step& step : plan->steps) {
      if (step.kind != StepKind::kSend && step.kind != StepKind::kRecv) continue;
      const bool leaves_node = step.peer / 2 != rank / 2;
      EXPECT_TRUE(!leaves_node || (rank == leader && step.peer % 2 == 0)) << "rank " << rank << " and " << step.peer;
      EXPECT_EQ(plan->refs[step.first_ref].dtype == DType::kU8, leaves_node);
    }
  }
}

TEST(BetweenNodes, ANodePerRankChangesNothing) {
  const absl::StatusOr<Plan> nodes = PlanOf("bytegrad", 1, {0, 1, 2});
  const absl::StatusOr<Plan> flat = PlanOf("bytegrad:hierarchical=false", 1, {0, 1, 2});
  ASSERT_TRUE(nodes.ok() && flat.ok());
  EXPECT_EQ(nodes->steps.size(), flat->steps.size());
  EXPECT_EQ(WireBytes(*nodes), WireBytes(*flat));
}

TEST(BetweenNodes, LeadersAreThoseWhoExchange) {
  const PlanOptions options = {.nodes = {5, 2, 5, 2, 9}};
  EXPECT_THAT(ParticipantsOf(*ParseStrategy("bytegrad"), 5, options), ElementsAre(0, 1, 4));
  EXPECT_THAT(ParticipantsOf(*ParseStrategy("bytegrad:hierarchical=false"), 5, options), ElementsAre(0, 1, 2, 3, 4));
}

// All ranks of a node promise the mix of their leader: a third each of the node before, of their own and of the node
// after.
TEST(BetweenNodes, RanksOfANodeEndWithOneMix) {
  for (Rank rank = 0; rank < 8; ++rank) {
    const absl::StatusOr<Plan> plan = PlanOf("low_precision_decentralized", rank, {0, 0, 1, 1, 2, 2, 3, 3});
    ASSERT_TRUE(plan.ok()) << plan.status();
    const int opposite = (rank / 2 + 2) % 4;
    for (Rank from = 0; from < 8; ++from) {
      EXPECT_DOUBLE_EQ(plan->mixing[from], from / 2 == opposite ? 0 : 1.0 / 6) << rank << " of " << from;
    }
  }
}

// With unequal nodes a rank of a small node would count more than a rank of a large node.
TEST(BetweenNodes, MixingNeedsNodesOfEquallyManyRanks) {
  const std::pair<const char*, std::vector<int>> uneven[] = {
      {"low_precision_decentralized", {0, 0, 1, 2, 3}},
      {"decentralized:peer_selection_mode=ring", {0, 0, 1, 2, 3}},
      {"decentralized:matrix=0.5 0.5/0.5 0.5", {0, 0, 0, 1}},
      {"decentralized:matrix=0.75 0.25/0.25 0.75", {0, 1, 1, 1}},
  };
  for (const auto& [strategy, nodes] : uneven) {
    const absl::Status status = PlanOf(strategy, 0, nodes).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("equally many ranks; use hierarchical=false"));
  }
  // The average of all ranks needs no equal nodes.
  EXPECT_TRUE(PlanOf("decentralized", 0, {0, 0, 1}).ok());
  EXPECT_TRUE(PlanOf("decentralized:peer_selection_mode=ring", 0, {0, 0, 1, 2}).ok());
  EXPECT_TRUE(PlanOf("decentralized:matrix=0.5 0.5/0.5 0.5", 0, {0, 1, 0, 1}).ok());
  EXPECT_TRUE(PlanOf("decentralized:hierarchical=false,matrix=0.4 0.3 0.3/0.3 0.4 0.3/0.3 0.3 0.4", 0, {0, 0, 1}).ok());
}

TEST(BetweenNodes, AMatrixOfAllRanksSaysThatNodesMix) {
  const std::string of_four = "matrix=0.5 0.5 0 0/0.5 0 0.5 0/0 0.5 0 0.5/0 0 0.5 0.5";
  const absl::Status status = PlanOf("decentralized:" + of_four, 0, {0, 0, 1, 1}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("has 4 rows, but hierarchical=true mixes the averages of 2 nodes: give 2 rows, or 4, one per "
                        "rank, with hierarchical=false"));
  EXPECT_THAT(std::string(PlanOf("decentralized:" + of_four, 0, {0, 0, 0, 1}).status().message()),
              HasSubstr("equally many ranks; use hierarchical=false"));
  EXPECT_TRUE(PlanOf("decentralized:hierarchical=false," + of_four, 0, {0, 0, 1, 1}).ok());
}

TEST(BetweenNodes, ACastUnderAScheduleIsRefused) {
  const absl::Status status =
      PlanOf("gradient_allreduce:hierarchical=true,codec=bf16,schedule=ring", 0, {0, 0, 1}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("use schedule=auto, or hierarchical=false"));
}

TEST(BetweenNodes, NodesMustBeNamedForEveryRank) {
  const absl::Status status = BuildPlan(*ParseStrategy("bytegrad"), DType::kF32, 8, 0, 3, {.nodes = {0, 1}}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("nodes of 2 ranks, not of 3"));
}

}  // namespace
}  // namespace tutti
