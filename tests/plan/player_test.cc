#include "plan/player.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tutti/schedule.h"

namespace tutti {
namespace {

std::vector<Plan> PlansOf(const Schedule& schedule, const CollectiveSpec& spec, int size, const PlanOptions& options) {
  std::vector<Plan> plans;
  for (Rank rank = 0; rank < size; ++rank) {
    absl::StatusOr<Plan> plan = BuildPlan(schedule, spec, rank, size, options);
    EXPECT_TRUE(plan.ok()) << plan.status();
    plans.push_back(*std::move(plan));
  }
  return plans;
}

// Where all ranks have alike plans, the plan of one rank gives the time of all.
TEST(PlayerTest, OnePlanStandsForAllWhereRanksAreAlike) {
  const CostModel& model = DefaultCostModel();
  for (const auto& [collective, name] :
       std::vector<std::pair<Collective, std::string>>{{Collective::kAllReduce, "direct"},
                                                       {Collective::kAllReduce, "halving_doubling"},
                                                       {Collective::kAllReduce, "recursive_doubling"},
                                                       {Collective::kAllReduce, "ring"},
                                                       {Collective::kReduceScatter, "ring"},
                                                       {Collective::kAllGather, "ring"},
                                                       {Collective::kAllGather, "direct"},
                                                       {Collective::kAllToAll, "pairwise"},
                                                       {Collective::kBarrier, "dissemination"}}) {
    for (const std::int64_t count : {1 << 10, 1 << 20}) {
      CollectiveSpec spec{.collective = collective, .count = collective == Collective::kBarrier ? 0 : count};
      const std::vector<Plan> plans = PlansOf(**FindSchedule(collective, name), spec, 8, {.peers_mapped = true});
      const double all = Play(plans, {}, model);
      EXPECT_GT(all, 0);
      EXPECT_NEAR(Play(absl::MakeConstSpan(plans).first(1), {}, model), all, all * 0.1)
          << Name(collective) << ":" << name << " " << count;
    }
  }
}

// Messages take links in the order of time, whichever ranks they are of: where every rank sends to all others, links
// stay busy, but for what it costs that senders take turns.
TEST(PlayerTest, RanksThatAllSendToAllKeepTheirLinksBusy) {
  CostModel model = DefaultCostModel();
  model.between_nodes.latency_s = 50e-6;
  model.between_nodes.bytes_per_s = 1.2e8;
  for (const int size : {3, 4, 8, 16}) {
    std::vector<int> nodes;
    for (Rank rank = 0; rank < size; ++rank) nodes.push_back(rank);
    const CollectiveSpec spec{.collective = Collective::kAllReduce, .count = 4 << 20};
    const std::vector<Plan> plans = PlansOf(**FindSchedule(spec.collective, "two_shot"), spec, size, {.nodes = nodes});
    const double wire = 2.0 * (size - 1) / size * 4 * static_cast<double>(spec.count) / model.between_nodes.bytes_per_s;
    const double seconds = Play(plans, nodes, model);
    EXPECT_GE(seconds, wire) << size;
    EXPECT_LE(seconds, 1.1 * wire) << size;
  }
}

// The plan of one rank also stands for the ranks of its node, which send to other nodes at the same time.
TEST(PlayerTest, OnePlanStandsForAllRanksOfItsNode) {
  const std::vector<int> nodes = {0, 0, 1, 1, 2, 2, 3, 3};
  CostModel model = DefaultCostModel();
  model.between_nodes.latency_s = 8.5e-6;
  model.between_nodes.bytes_per_s = 1.2e8;
  for (const auto& [collective, name] :
       std::vector<std::pair<Collective, std::string>>{{Collective::kAllReduce, "halving_doubling"},
                                                       {Collective::kAllReduce, "recursive_doubling"},
                                                       {Collective::kAllReduce, "ring"},
                                                       {Collective::kAllGather, "ring"}}) {
    const CollectiveSpec spec{.collective = collective, .count = 1 << 16};
    const std::vector<Plan> plans = PlansOf(**FindSchedule(collective, name), spec, 8, {.nodes = nodes});
    const double all = Play(plans, nodes, model);
    EXPECT_NEAR(Play(absl::MakeConstSpan(plans).first(1), nodes, model), all, all * 0.2)
        << Name(collective) << ":" << name;
  }
}

TEST(PlayerTest, RanksThatShareAProcessorTakeTurns) {
  const CollectiveSpec spec{.collective = Collective::kAllReduce, .count = 1 << 20};
  const std::vector<Plan> plans =
      PlansOf(**FindSchedule(Collective::kAllReduce, "direct"), spec, 8, {.peers_mapped = true});
  CostModel model = DefaultCostModel();
  const double alone = Play(plans, {}, model);
  model.cores_per_node = 8;
  EXPECT_DOUBLE_EQ(Play(plans, {}, model), alone);
  model.cores_per_node = 2;
  EXPECT_GT(Play(plans, {}, model), 3.5 * alone);
  // Nodes of two ranks have enough processors.
  EXPECT_DOUBLE_EQ(Play(plans, {0, 0, 1, 1, 2, 2, 3, 3}, model), alone);
  model.cores_per_node = 1;
  model.switch_s = 1;
  EXPECT_GT(Play(plans, {0, 0, 1, 1, 2, 2, 3, 3}, model), 1);
}

TEST(PlayerTest, BothEndsOfAMessageHandleIt) {
  CostModel model;
  model.within_node = {.latency_s = 1, .bytes_per_s = 10, .message_s = 2, .copy_bytes_per_s = 20};
  std::vector<Plan> plans;
  for (const Rank rank : {0, 1}) {
    PlanBuilder b("test", {.collective = Collective::kBroadcast, .count = 10}, rank, 2, {});
    rank == 0 ? b.Send(1, b.in()) : b.Recv(0, b.out());
    plans.push_back(*std::move(b).Build());
  }
  EXPECT_DOUBLE_EQ(Play(plans, {}, model), (2 + 2) + 1 + 4 + (2 + 2));
  // A receive whose sender has no plan here waits for a message that leaves at the start.
  EXPECT_DOUBLE_EQ(Play({plans[1]}, {}, model), 1 + 4 + (2 + 2));
}

// The receiver copies an announced message once; its sender waits until then.
TEST(PlayerTest, AnnouncedMessagesAreCopiedOnceByTheirReceiver) {
  CostModel model;
  model.within_node = {.latency_s = 1,
                       .bytes_per_s = 10,
                       .message_s = 2,
                       .copy_bytes_per_s = 20,
                       .announced_bytes = 40,
                       .announced_bytes_per_s = 5};
  const auto seconds_for = [&](std::int64_t count) {
    std::vector<Plan> plans;
    for (const Rank rank : {0, 1}) {
      PlanBuilder b("test", {.collective = Collective::kBroadcast, .count = count}, rank, 2, {});
      rank == 0 ? b.Send(1, b.in()) : b.Recv(0, b.out());
      plans.push_back(*std::move(b).Build());
    }
    return Play(plans, {}, model);
  };
  EXPECT_DOUBLE_EQ(seconds_for(9), (2 + 1.8) + 1 + 3.6 + (2 + 1.8));
  EXPECT_DOUBLE_EQ(seconds_for(10), 2 + 1 + (2 + 8));
}

TEST(PlayerTest, ScratchIsReadAndWrittenAtARateOfItsOwn) {
  CostModel model;
  model.step_s = 0;
  model.memory_bytes_per_s = 100;
  PlanBuilder b("test", {.collective = Collective::kAllReduce, .count = 25}, 0, 1, {});
  b.Copy(b.Scratch(DType::kF32, 25), b.in());
  b.Copy(b.out(), b.in());
  const Plan plan = *std::move(b).Build();
  EXPECT_DOUBLE_EQ(Play({plan}, {}, model), 2 + 2);
  model.scratch_bytes_per_s = 10;
  EXPECT_DOUBLE_EQ(Play({plan}, {}, model), 10 + 2);
}

// A rank copies three blocks at once: it does not stop after the first one for the rank that shares its processor.
TEST(PlayerTest, ARankThatSharesItsProcessorGoesOnUntilItWaits) {
  CostModel model;
  model.cores_per_node = 1;
  model.switch_s = 100;
  model.step_s = 1;
  std::vector<Plan> plans;
  for (const Rank rank : {0, 1}) {
    PlanBuilder b("test", {.collective = Collective::kAllReduce, .count = 3}, rank, 2, {});
    for (int block = 0; block < 3; ++block) b.Copy(b.Scratch(DType::kF32, 1), b.in().Elements(block, 1));
    plans.push_back(*std::move(b).Build());
  }
  EXPECT_LT(Play(plans, {}, model), 2 * 100 + 10);
}

}  // namespace
}  // namespace tutti
