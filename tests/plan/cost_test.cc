#include "tutti/cost.h"

#include <gtest/gtest.h>

#include <functional>
#include <utility>
#include <vector>

#include "tutti/plan_builder.h"

namespace tutti {
namespace {

using Author = std::function<void(PlanBuilder&)>;

constexpr CostModel kModel{.within_node = {.latency_s = 1, .bytes_per_s = 10},
                           .between_nodes = {.latency_s = 5, .bytes_per_s = 2},
                           .ranks_per_node = 0,
                           .step_s = 0,
                           .signal_s = 1,
                           .memory_bytes_per_s = 100};

// Every rank of a broadcast of 10 elements (40 bytes) writes its plan with `author`.
Cost CostOfBroadcast(int size, const CostModel& model, const Author& author,
                     const PlanOptions& options = {.peers_mapped = true}) {
  std::vector<Plan> plans;
  for (Rank rank = 0; rank < size; ++rank) {
    PlanBuilder b("test", {.collective = Collective::kBroadcast, .count = 10}, rank, size, options);
    author(b);
    absl::StatusOr<Plan> plan = std::move(b).Build();
    EXPECT_TRUE(plan.ok()) << plan.status();
    plans.push_back(*std::move(plan));
  }
  absl::StatusOr<Cost> cost = CostOf(plans, model);
  EXPECT_TRUE(cost.ok()) << cost.status();
  return cost.ok() ? *cost : Cost();
}

void Chain(PlanBuilder& b) {
  if (b.rank() > 0) b.Recv(b.rank() - 1, b.out());
  if (b.rank() + 1 < b.size()) b.Send(b.rank() + 1, b.rank() == 0 ? b.in() : b.out());
}

void Star(PlanBuilder& b) {
  for (Rank peer = 1; b.rank() == 0 && peer < b.size(); ++peer) b.Send(peer, b.in());
  if (b.rank() > 0) b.Recv(0, b.out());
}

TEST(CostTest, MessagesOfAChainFollowEachOther) {
  const Cost cost = CostOfBroadcast(4, kModel, Chain);
  EXPECT_DOUBLE_EQ(cost.seconds, 3 * (1 + 4));
  EXPECT_EQ(cost.steps, 2);
  EXPECT_EQ(cost.messages, 1);
  EXPECT_EQ(cost.wire_bytes, 40);
}

TEST(CostTest, TellsWhenStepsHappen) {
  std::vector<Plan> plans;
  for (Rank rank = 0; rank < 3; ++rank) {
    PlanBuilder b("test", {.collective = Collective::kBroadcast, .count = 10}, rank, 3, {});
    Chain(b);
    absl::StatusOr<Plan> plan = std::move(b).Build();
    ASSERT_TRUE(plan.ok()) << plan.status();
    plans.push_back(*std::move(plan));
  }
  CostModel model = kModel;
  model.within_node.message_s = 0.5;
  const auto times = TimesOf(plans, model);
  ASSERT_TRUE(times.ok()) << times.status();
  ASSERT_EQ(times->size(), 3);
  const StepTime& send = (*times)[0][0];
  EXPECT_DOUBLE_EQ(send.begin, 0);
  EXPECT_DOUBLE_EQ(send.worked, 0.5);
  EXPECT_DOUBLE_EQ(send.end, 0.5 + 4);  // the message is on its way
  EXPECT_EQ(send.source_plan, -1);
  const StepTime& recv = (*times)[1][0];
  EXPECT_DOUBLE_EQ(recv.begin, 0.5 + 1 + 4);
  EXPECT_DOUBLE_EQ(recv.worked, 0.5 + 1 + 4 + 0.5);
  EXPECT_EQ(recv.source_plan, 0);
  EXPECT_EQ(recv.source_step, 0);
  EXPECT_DOUBLE_EQ(recv.left, 0.5);
  EXPECT_DOUBLE_EQ((*times)[2][0].left, 0.5 + 1 + 4 + 0.5 + 0.5);
  EXPECT_DOUBLE_EQ((*times)[2][0].end, CostOf(plans, model)->seconds);
}

TEST(CostTest, TellsWhenStepsOfSomeRanksHappen) {
  PlanBuilder b("test", {.collective = Collective::kBroadcast, .count = 10}, 0, 3, {.peers_mapped = true});
  b.Signal();
  b.Wait(1);
  const absl::StatusOr<Plan> plan = std::move(b).Build();
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto times = TimesOf({&*plan, 1}, kModel);
  ASSERT_TRUE(times.ok()) << times.status();
  EXPECT_EQ((*times)[0][1].source_plan, -1);  // rank 1 has no plan, and is taken to signal when rank 0 does
  EXPECT_DOUBLE_EQ((*times)[0][1].end, 1);
  EXPECT_EQ(TimesOf({}, kModel).status().message(), "plans is empty; it needs the plan of at least one rank");
}

TEST(CostTest, SegmentsOfAChainOverlap) {
  const Cost cost = CostOfBroadcast(4, kModel, Chain, {.segment_bytes = 8});
  EXPECT_DOUBLE_EQ(cost.seconds, 3 * 1 + (5 + 2) * 0.8);
}

TEST(CostTest, MessagesOfOneRankShareItsLink) {
  const Cost cost = CostOfBroadcast(4, kModel, Star);
  EXPECT_DOUBLE_EQ(cost.seconds, 3 * 4 + 1);
  EXPECT_EQ(cost.wire_bytes, 120);
}

TEST(CostTest, NodesAreFurtherApart) {
  CostModel model = kModel;
  model.ranks_per_node = 2;
  EXPECT_DOUBLE_EQ(CostOfBroadcast(4, model, Chain).seconds, (1 + 4) + (5 + 20) + (1 + 4));
}

// Rank 0 sends to rank 2 and rank 1 to rank 3, both on the other node, and rank 0 to its neighbour at the same time.
TEST(CostTest, RanksOfANodeShareItsLinkToOtherNodes) {
  CostModel model = kModel;
  model.ranks_per_node = 2;
  const Cost cost = CostOfBroadcast(4, model, [](PlanBuilder& b) {
    const Ref kept = b.Scratch(DType::kF32, 10);
    if (b.rank() == 0) b.Send(1, b.in());
    if (b.rank() == 1) b.Recv(0, kept);
    if (b.rank() < 2) b.Send(b.rank() + 2, b.rank() == 0 ? b.in() : b.Scratch(DType::kF32, 10));
    if (b.rank() >= 2) b.Recv(b.rank() - 2, b.out());
  });
  EXPECT_DOUBLE_EQ(cost.seconds, 5 + 20 + 20);
}

TEST(CostTest, MappedMemoryCostsSignalsAndMemoryTraffic) {
  CostModel model = kModel;
  model.step_s = 0.5;
  const Cost cost = CostOfBroadcast(2, model, [](PlanBuilder& b) {
    b.Signal();
    b.WaitAll();
    if (b.rank() == 0) b.Copy(b.out().At(1), b.in());
  });
  EXPECT_DOUBLE_EQ(cost.seconds, 0.5 + 1 + 0.5 + 0.8);
  EXPECT_EQ(cost.memory_bytes, 80);
  EXPECT_EQ(cost.messages, 0);
}

TEST(CostTest, UnmatchedPlansHaveNoCost) {
  PlanBuilder b("test", {.count = 1}, 0, 1, {});
  Plan plan = *std::move(b).Build();
  plan.size = 2;
  EXPECT_EQ(CostOf({plan}, kModel).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tutti
