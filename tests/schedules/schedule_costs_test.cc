// The steps and bytes that the comment at the head of every schedule promises.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tutti/cost_model.h"
#include "tutti/schedule.h"

namespace tutti {
namespace {

constexpr std::int64_t kBytesOfF32 = 4;

std::int64_t StepsOf(const Plan& plan, StepKind kind) {
  return std::count_if(plan.steps.begin(), plan.steps.end(), [&](const Step& step) { return step.kind == kind; });
}

// One plan per rank; buffers are never cut. `nodes`: of the ranks, where there are several.
std::vector<Plan> PlansOf(CollectiveSpec spec, absl::string_view name, int size, const std::vector<int>& nodes = {}) {
  std::vector<Plan> plans;
  absl::StatusOr<const Schedule*> schedule = FindSchedule(spec.collective, name);
  EXPECT_TRUE(schedule.ok()) << schedule.status();
  if (!schedule.ok()) return plans;
  for (Rank rank = 0; rank < size; ++rank) {
    absl::StatusOr<Plan> plan =
        BuildPlan(**schedule, spec, rank, size, {.segment_bytes = 64 << 20, .peers_mapped = true, .nodes = nodes});
    EXPECT_TRUE(plan.ok()) << plan.status();
    if (plan.ok()) plans.push_back(*std::move(plan));
  }
  return plans;
}

// The bytes of the messages, all of which must go to other nodes.
std::int64_t BytesBetweenNodes(const Plan& plan, const std::vector<int>& nodes) {
  std::int64_t bytes = 0;
  for (const Step& step : plan.steps) {
    if (step.kind != StepKind::kSend) continue;
    EXPECT_NE(nodes[step.peer], nodes[plan.rank]);
    bytes += plan.srcs(step)[0].bytes;
  }
  return bytes;
}

CollectiveSpec SpecOf(Collective collective, std::int64_t count) {
  CollectiveSpec spec;
  spec.collective = collective;
  spec.count = count;
  return spec;
}

TEST(AllReduceRing, SendsTwoNMinusOneChunks) {
  const int n = 5;
  const std::int64_t count = 1000;
  for (const Plan& plan : PlansOf(SpecOf(Collective::kAllReduce, count), "ring", n)) {
    EXPECT_EQ(StepsOf(plan, StepKind::kSend), 2 * (n - 1));
    EXPECT_EQ(StepsOf(plan, StepKind::kRecv), 2 * (n - 1));
    EXPECT_EQ(StepsOf(plan, StepKind::kReduce), n - 1);
    EXPECT_EQ(WireBytes(plan), 2 * (n - 1) * count * kBytesOfF32 / n);
  }
}

TEST(AllReduceRing, SendsPartialsOf16BitSumsAsFp32AndResultsAs16Bit) {
  CollectiveSpec spec = SpecOf(Collective::kAllReduce, 1000);
  spec.dtype = DType::kBF16;
  for (const Plan& plan : PlansOf(spec, "ring", 5)) EXPECT_EQ(WireBytes(plan), 4 * 200 * (4 + 2));
  spec.op = ReduceOp::kMax;  // kMax is exact in 16 bits, so partials stay 16-bit
  for (const Plan& plan : PlansOf(spec, "ring", 5)) EXPECT_EQ(WireBytes(plan), 4 * 200 * (2 + 2));
}

TEST(AllReduceRing, NeedsLittleScratchHoweverLongTheBuffer) {
  const CollectiveSpec spec = SpecOf(Collective::kAllReduce, std::int64_t{256} << 20);
  absl::StatusOr<const Schedule*> ring = FindSchedule(Collective::kAllReduce, "ring");
  ASSERT_TRUE(ring.ok());
  absl::StatusOr<Plan> plan = BuildPlan(**ring, spec, 0, 4, {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->scratch_bytes, 8 * PlanOptions().segment_bytes);
}

TEST(AllReduceRecursiveDoubling, SendsTheWholeBufferAtEveryStep) {
  for (const Plan& plan : PlansOf(SpecOf(Collective::kAllReduce, 100), "recursive_doubling", 8)) {
    EXPECT_EQ(StepsOf(plan, StepKind::kSend), 3);
    EXPECT_EQ(WireBytes(plan), 3 * 100 * kBytesOfF32);
  }
}

TEST(AllReduceRecursiveDoubling, FoldsExtrasIntoPartners) {
  const std::vector<Plan> plans = PlansOf(SpecOf(Collective::kAllReduce, 100), "recursive_doubling", 6);
  ASSERT_EQ(plans.size(), 6);
  const std::vector<int> sends = {3, 1, 3, 1, 2, 2};  // ranks 1 and 3 fold their input into ranks 0 and 2
  for (Rank rank = 0; rank < 6; ++rank) EXPECT_EQ(StepsOf(plans[rank], StepKind::kSend), sends[rank]) << rank;
}

TEST(AllReduceHalvingDoubling, SendsTheMinimumInLogarithmicallyManySteps) {
  for (const Plan& plan : PlansOf(SpecOf(Collective::kAllReduce, 800), "halving_doubling", 8)) {
    EXPECT_EQ(StepsOf(plan, StepKind::kSend), 6);
    EXPECT_EQ(WireBytes(plan), 2 * 7 * 100 * kBytesOfF32);
  }
}

TEST(AllReduceTwoShot, SendsTheMinimumInTwoStepsAlsoOf16BitSums) {
  CollectiveSpec spec = SpecOf(Collective::kAllReduce, 1000);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    spec.dtype = dtype;
    for (const Plan& plan : PlansOf(spec, "two_shot", 5)) {
      EXPECT_EQ(StepsOf(plan, StepKind::kSend), 2 * 4);
      EXPECT_EQ(StepsOf(plan, StepKind::kReduce), 1);
      EXPECT_EQ(WireBytes(plan), 2 * 4 * 200 * SizeOf(dtype));
    }
  }
}

TEST(AllReduceTwoShot, NeedsEightSegmentsOfScratchForEachPeerHoweverLongTheBuffer) {
  const CollectiveSpec spec = SpecOf(Collective::kAllReduce, std::int64_t{256} << 20);
  absl::StatusOr<const Schedule*> two_shot = FindSchedule(Collective::kAllReduce, "two_shot");
  ASSERT_TRUE(two_shot.ok());
  absl::StatusOr<Plan> plan = BuildPlan(**two_shot, spec, 0, 4, {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->scratch_bytes, 3 * 8 * PlanOptions().segment_bytes);
}

TEST(AllReduceHierarchical, EveryRankSendsItsShareOfWhatItsNodeSends) {
  const std::vector<int> nodes = {0, 0, 1, 1, 2, 2};
  const std::int64_t count = 960;
  for (const Plan& plan : PlansOf(SpecOf(Collective::kAllReduce, count), "hierarchical", 6, nodes)) {
    EXPECT_EQ(StepsOf(plan, StepKind::kSend), 4);
    EXPECT_EQ(BytesBetweenNodes(plan, nodes), 2 * 2 * count / 3 / 2 * kBytesOfF32);
    EXPECT_EQ(WireBytes(plan) - BytesBetweenNodes(plan, nodes), 2 * count / 2 * kBytesOfF32);
  }
  CollectiveSpec spec = SpecOf(Collective::kAllReduce, count);
  spec.dtype = DType::kBF16;
  for (const Plan& plan : PlansOf(spec, "hierarchical", 6, nodes)) {
    EXPECT_EQ(BytesBetweenNodes(plan, nodes), 2 * count / 3 / 2 * (4 + 2));
  }
}

// As the cost of each schedule says: messages are as long as a segment, or shorter, down to 16 KiB, for 8 stages.
TEST(Hierarchical, ShortBuffersAreCutIntoUpToEightStages) {
  const PlanOptions options{.peers_mapped = true, .nodes = {0, 0, 1, 1, 2, 2, 3, 3}};
  const int nodes = 4;
  const int places = 2;
  struct Case {
    Collective collective;
    std::int64_t messages;  // of a stage
    std::int64_t shares;    // the elements of a call, over those that its messages of one kind carry together
  };
  for (const Case& at : {Case{Collective::kAllReduce, 2 * (nodes - 1), nodes * places},
                         {Collective::kReduceScatter, nodes - 1, 1},
                         {Collective::kAllGather, nodes - 1, 1},
                         {Collective::kAllToAll, nodes - 1, 1},
                         {Collective::kBroadcast, 1, places}}) {
    for (const auto& [share_bytes, stages] :
         {std::pair(std::int64_t{8} << 10, 1), {32 << 10, 2}, {128 << 10, 8}, {1 << 20, 8}, {4 << 20, 16}}) {
      const CollectiveSpec spec = SpecOf(at.collective, at.shares * share_bytes / kBytesOfF32);
      const absl::StatusOr<Plan> plan = BuildPlan(**FindSchedule(at.collective, "hierarchical"), spec, 0, 8, options);
      ASSERT_TRUE(plan.ok()) << plan.status();
      // A message of an all_to_all has parts of several blocks, and is cut where these are longer than a segment.
      const int cuts = at.collective == Collective::kAllToAll && stages == 16 ? places : 1;
      EXPECT_EQ(StepsOf(*plan, StepKind::kSend), at.messages * stages * cuts)
          << Name(at.collective) << " " << share_bytes;
    }
  }
}

// A rank tells its neighbours of a stage while the messages of the stage before are under way.
TEST(AllReduceHierarchical, ANodeWorksWhileMessagesAreUnderWay) {
  absl::StatusOr<const Schedule*> schedule = FindSchedule(Collective::kAllReduce, "hierarchical");
  ASSERT_TRUE(schedule.ok());
  const absl::StatusOr<Plan> plan = BuildPlan(**schedule, SpecOf(Collective::kAllReduce, 1 << 20), 0, 4,
                                              {.peers_mapped = true, .nodes = {0, 0, 1, 1}});
  ASSERT_TRUE(plan.ok()) << plan.status();
  std::vector<int> arrived;  // for each step: the receives that come before it
  int written = 0;           // receives so far in the text of the plan
  int signals = 0;
  for (StepId id = 0; id < plan->steps.size(); ++id) {
    const Step& step = plan->steps[id];
    int before = 0;
    for (const StepId dep : plan->deps_of(step)) before = std::max(before, arrived[dep]);
    if (step.kind == StepKind::kRecv) before = ++written;
    arrived.push_back(before);
    if (step.kind != StepKind::kSignal) continue;
    // Two receives in a stage; the signal with the results of a stage follows those of the stage, and no later ones.
    EXPECT_EQ(before, 2 * std::max(signals - 2, 0) + (signals >= 2 ? 2 : 0)) << "signal " << signals;
    if (signals >= 2 && signals < 8) {
      EXPECT_EQ(written, before + 2) << "signal " << signals;
    }
    ++signals;
  }
  EXPECT_EQ(signals, 8 + 2);
}

TEST(AllReduceHierarchical, SaysWhichNodesItNeeds) {
  absl::StatusOr<const Schedule*> schedule = FindSchedule(Collective::kAllReduce, "hierarchical");
  ASSERT_TRUE(schedule.ok());
  const auto refusal = [&](const PlanOptions& options, int size) {
    const absl::Status status = (*schedule)->supports(SpecOf(Collective::kAllReduce, 8), size, options);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
    return std::string(status.message());
  };
  EXPECT_NE(refusal({.peers_mapped = true}, 4).find("all ranks are on one node"), std::string::npos);
  EXPECT_NE(refusal({.nodes = {0, 0, 1, 1}}, 4).find("which is not mapped"), std::string::npos);
  EXPECT_NE(refusal({.peers_mapped = true, .nodes = {0, 0, 1}}, 3).find("nodes have 1 to 2 ranks"), std::string::npos);
  EXPECT_NE(refusal({.peers_mapped = true, .nodes = {0, 1}}, 2).find("nodes have 1 rank"), std::string::npos);
}

TEST(ReduceScatterHierarchical, SendsABlockToEveryOtherNode) {
  const std::vector<int> nodes = {0, 0, 1, 1, 2, 2};
  for (const Plan& plan : PlansOf(SpecOf(Collective::kReduceScatter, 100), "hierarchical", 6, nodes)) {
    EXPECT_EQ(BytesBetweenNodes(plan, nodes), 2 * 100 * kBytesOfF32);
    EXPECT_EQ(WireBytes(plan), (2 + 3) * 100 * kBytesOfF32);
  }
}

TEST(AllGatherHierarchical, SendsABlockToEveryOtherNode) {
  const std::vector<int> nodes = {0, 0, 1, 1, 2, 2};
  for (const Plan& plan : PlansOf(SpecOf(Collective::kAllGather, 100), "hierarchical", 6, nodes)) {
    EXPECT_EQ(BytesBetweenNodes(plan, nodes), 2 * 100 * kBytesOfF32);
    EXPECT_EQ(WireBytes(plan), (2 + 3) * 100 * kBytesOfF32);
  }
}

TEST(AllToAllHierarchical, SendsOneMessageToEveryOtherNode) {
  const std::vector<int> nodes = {0, 1, 2, 0, 1, 2};
  for (const Plan& plan : PlansOf(SpecOf(Collective::kAllToAll, 100), "hierarchical", 6, nodes)) {
    EXPECT_EQ(StepsOf(plan, StepKind::kSend), 2);
    EXPECT_EQ(StepsOf(plan, StepKind::kSignal), 1);
    EXPECT_EQ(BytesBetweenNodes(plan, nodes), 2 * 2 * 100 * kBytesOfF32);
    EXPECT_EQ(WireBytes(plan), (2 * 2 + 3) * 100 * kBytesOfF32);
  }
}

TEST(BroadcastHierarchical, EveryRankSendsItsChunkAtMostOnce) {
  const std::vector<int> nodes = {0, 0, 1, 1, 2, 2};
  CollectiveSpec spec = SpecOf(Collective::kBroadcast, 960);
  spec.root = 3;
  for (const Plan& plan : PlansOf(spec, "hierarchical", 6, nodes)) {
    EXPECT_EQ(BytesBetweenNodes(plan, nodes), nodes[plan.rank] == 0 ? 0 : 480 * kBytesOfF32) << plan.rank;
  }
}

TEST(AllReduceDirect, OneShotNeedsOneRoundOfSignals) {
  for (const Plan& plan : PlansOf(SpecOf(Collective::kAllReduce, 64), "direct", 4)) {
    EXPECT_EQ(plan.steps.size(), 6);  // copy, signal, 3 waits, reduce
    EXPECT_EQ(StepsOf(plan, StepKind::kSignal), 1);
    EXPECT_EQ(WireBytes(plan), 3 * 64 * kBytesOfF32);
  }
}

TEST(AllReduceDirect, TwoShotReadsAndWritesEveryElementOnce) {
  for (const Plan& plan : PlansOf(SpecOf(Collective::kAllReduce, 64 << 10), "direct", 4)) {
    EXPECT_EQ(plan.steps.size(), 9);  // signal, 3 waits, reduce, signal, 3 waits
    EXPECT_EQ(plan.scratch_bytes, 0);
    EXPECT_EQ(WireBytes(plan), 2 * 3 * (64 << 10) / 4 * kBytesOfF32);
  }
}

TEST(Direct, CopiesMoreBeforeTheOnlyMeetingWhereRanksWaitForTheirTurnOfAProcessor) {
  const auto meetings = [](Collective collective, int processors) {
    auto model = std::make_shared<CostModel>(DefaultCostModel());
    model->cores_per_node = processors;
    absl::StatusOr<const Schedule*> direct = FindSchedule(collective, "direct");
    const absl::StatusOr<Plan> plan =
        BuildPlan(**direct, SpecOf(collective, 128), 0, 4, {.peers_mapped = true, .cost_model = std::move(model)});
    EXPECT_TRUE(plan.ok()) << plan.status();
    return plan.ok() ? StepsOf(*plan, StepKind::kSignal) : 0;
  };
  for (const Collective collective : {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter,
                                      Collective::kAllToAll, Collective::kBroadcast, Collective::kReduce}) {
    EXPECT_EQ(meetings(collective, 2), 1) << Name(collective);
    EXPECT_EQ(meetings(collective, 4), 2) << Name(collective);
    EXPECT_EQ(meetings(collective, 0), 2) << Name(collective) << ": not known";
  }
}

TEST(AllReduceDirect, RanksWriteToDifferentCacheLines) {
  CollectiveSpec spec = SpecOf(Collective::kAllReduce, (16 << 10) + 1);
  spec.dtype = DType::kU8;
  std::int64_t next = 0;
  for (const Plan& plan : PlansOf(spec, "direct", 7)) {
    for (const Step& step : plan.steps) {
      if (step.kind != StepKind::kReduce) continue;
      EXPECT_EQ(plan.dsts(step)[0].offset, next);
      next += plan.dsts(step)[0].bytes;
      EXPECT_TRUE(next % 64 == 0 || next == spec.count) << next;
    }
  }
  EXPECT_EQ(next, spec.count);
}

TEST(AllReduceDirect, RefusesPeersThatAreNotMapped) {
  absl::StatusOr<const Schedule*> direct = FindSchedule(Collective::kAllReduce, "direct");
  ASSERT_TRUE(direct.ok());
  absl::StatusOr<Plan> plan = BuildPlan(**direct, SpecOf(Collective::kAllReduce, 1), 0, 2, {.peers_mapped = false});
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_NE(plan.status().message().find("not mapped"), std::string::npos) << plan.status();
}

TEST(ReduceScatterRing, SendsEveryChunkButItsOwn) {
  for (const Plan& plan : PlansOf(SpecOf(Collective::kReduceScatter, 100), "ring", 5)) {
    EXPECT_EQ(StepsOf(plan, StepKind::kSend), 4);
    EXPECT_EQ(WireBytes(plan), 4 * 100 * kBytesOfF32);
  }
}

// ⌈log2 n⌉
int DoublingSteps(int n) {
  int steps = 0;
  while ((1 << steps) < n) ++steps;
  return steps;
}

TEST(ReduceScatterHalving, SendsHalfOfWhatIsLeftInEachStep) {
  for (const int n : {2, 4, 8}) {
    for (const Plan& plan : PlansOf(SpecOf(Collective::kReduceScatter, 100), "halving", n)) {
      EXPECT_EQ(StepsOf(plan, StepKind::kSend), DoublingSteps(n));
      EXPECT_EQ(WireBytes(plan), (n - 1) * 100 * kBytesOfF32);
    }
  }
  // In a world of 5 ranks, rank 1 is the extra of rank 0.
  for (const Plan& plan : PlansOf(SpecOf(Collective::kReduceScatter, 100), "halving", 5)) {
    EXPECT_EQ(WireBytes(plan), (plan.rank == 1 ? 5 : 4) * 100 * kBytesOfF32);
  }
}

TEST(ReduceScatterHalving, SendsRunsThatAreLongerThanASegmentInWholeChunks) {
  const absl::StatusOr<const Schedule*> halving = FindSchedule(Collective::kReduceScatter, "halving");
  ASSERT_TRUE(halving.ok());
  // Two chunks of 400 bytes fill a segment: of the four that travel first, two go in a message.
  const absl::StatusOr<Plan> plan =
      BuildPlan(**halving, SpecOf(Collective::kReduceScatter, 100), 0, 8, {.segment_bytes = 1000});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(StepsOf(*plan, StepKind::kSend), 2 + 1 + 1);
}

// Where n is a power of two, the ranks that exchange in a step are pairs.
TEST(DoublingSchedules, SendOneMessageInEachStepToTheRankThatSends) {
  for (const auto& [collective, name] : {std::pair{Collective::kAllGather, "bruck"},
                                         {Collective::kAllToAll, "bruck"},
                                         {Collective::kReduceScatter, "halving"},
                                         {Collective::kBarrier, "dissemination"}}) {
    const std::int64_t count = collective == Collective::kBarrier ? 0 : 100;
    for (const int n : {2, 4, 8, 16}) {
      for (const Plan& plan : PlansOf(SpecOf(collective, count), name, n)) {
        std::vector<Rank> receivers;
        std::vector<Rank> senders;
        for (const Step& step : plan.steps) {
          if (step.kind == StepKind::kSend) receivers.push_back(step.peer);
          if (step.kind == StepKind::kRecv) senders.push_back(step.peer);
        }
        EXPECT_EQ(receivers.size(), static_cast<std::size_t>(DoublingSteps(n)));
        EXPECT_EQ(receivers, senders);
      }
    }
  }
}

TEST(AllToAllBruck, SendsTheBlocksWhoseDistanceHasTheBitOfTheStep) {
  const auto blocks_sent = [](int n) {
    std::int64_t blocks = 0;
    for (int distance = 1; distance < n; ++distance) blocks += std::popcount(static_cast<unsigned>(distance));
    return blocks;
  };
  for (const int n : {2, 3, 5, 8, 13}) {
    for (const Plan& plan : PlansOf(SpecOf(Collective::kAllToAll, 100), "bruck", n)) {
      EXPECT_EQ(StepsOf(plan, StepKind::kSend), DoublingSteps(n));
      EXPECT_EQ(WireBytes(plan), blocks_sent(n) * 100 * kBytesOfF32);
    }
  }
}

TEST(AllGatherBruck, NeedsLogarithmicallyManyMessagesAndNoScratch) {
  for (int n : {2, 5, 8, 13}) {
    const int steps = DoublingSteps(n);
    for (const Plan& plan : PlansOf(SpecOf(Collective::kAllGather, 100), "bruck", n)) {
      EXPECT_GE(StepsOf(plan, StepKind::kSend), steps);
      EXPECT_LE(StepsOf(plan, StepKind::kSend), 2 * steps);  // runs of blocks that wrap around travel as two messages
      EXPECT_EQ(WireBytes(plan), (n - 1) * 100 * kBytesOfF32);
      EXPECT_EQ(plan.scratch_bytes, 0);
    }
  }
}

TEST(BroadcastBinomial, RootSendsOncePerLevel) {
  CollectiveSpec spec = SpecOf(Collective::kBroadcast, 100);
  spec.root = 3;
  const std::vector<Plan> plans = PlansOf(spec, "binomial", 8);
  ASSERT_EQ(plans.size(), 8);
  for (const Plan& plan : plans) EXPECT_EQ(StepsOf(plan, StepKind::kRecv), plan.rank == 3 ? 0 : 1);
  EXPECT_EQ(WireBytes(plans[3]), 3 * 100 * kBytesOfF32);
}

TEST(BroadcastScatterAllGather, SendsNoChunkToARankThatHasIt) {
  const std::int64_t count = 800;
  for (int n : {2, 5, 8, 64}) {
    const std::vector<Plan> plans = PlansOf(SpecOf(Collective::kBroadcast, count), "scatter_all_gather", n);
    std::int64_t sent = 0;
    for (const Plan& plan : plans) {
      sent += WireBytes(plan);
      EXPECT_LT(WireBytes(plan), 2 * count * kBytesOfF32) << plan.rank;
    }
    // Every chunk reaches every rank once.
    EXPECT_EQ(sent, (n - 1) * count * kBytesOfF32) << n;
  }
}

TEST(ReduceBinomial, EveryRankButTheRootSendsOnce) {
  CollectiveSpec spec = SpecOf(Collective::kReduce, 100);
  spec.root = 2;
  for (const Plan& plan : PlansOf(spec, "binomial", 7)) {
    EXPECT_EQ(WireBytes(plan), plan.rank == 2 ? 0 : 100 * kBytesOfF32);
  }
}

// Every rank passes the buffer on once, in pieces, and waits for no more than a piece before it begins.
// Schedules that wait only once for the way from node to node: no rank sends what has come from another.
TEST(Linear, OnlyTheRootOrTheOthersSend) {
  for (const Rank root : {0, 3}) {
    for (const Collective collective : {Collective::kBroadcast, Collective::kReduce}) {
      CollectiveSpec spec = SpecOf(collective, 100);
      spec.root = root;
      spec.dtype = DType::kBF16;  // of which sums travel as inputs, not as wider partials
      const std::vector<Plan> plans = PlansOf(spec, "linear", 5);
      ASSERT_EQ(plans.size(), 5);
      for (const Plan& plan : plans) {
        const bool sends_all = collective == Collective::kBroadcast;
        const std::int64_t at_root = plan.rank == root ? 4 : 0;
        const std::int64_t elsewhere = plan.rank == root ? 0 : 1;
        EXPECT_EQ(StepsOf(plan, StepKind::kSend), sends_all ? at_root : elsewhere) << root << " " << plan.rank;
        EXPECT_EQ(StepsOf(plan, StepKind::kRecv), sends_all ? elsewhere : at_root) << root << " " << plan.rank;
        EXPECT_EQ(WireBytes(plan), StepsOf(plan, StepKind::kSend) * 100 * SizeOf(DType::kBF16));
      }
    }
  }
}

TEST(ReduceLinear, NeedsEightSegmentsOfScratchForEachPeerHoweverLongTheBuffer) {
  const CollectiveSpec spec = SpecOf(Collective::kReduce, std::int64_t{256} << 20);
  const absl::StatusOr<const Schedule*> linear = FindSchedule(Collective::kReduce, "linear");
  ASSERT_TRUE(linear.ok());
  const absl::StatusOr<Plan> plan = BuildPlan(**linear, spec, 0, 4, {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->scratch_bytes, 3 * 8 * PlanOptions().segment_bytes);
}

TEST(BarrierPairwise, SendsATokenToEveryOtherRank) {
  for (const Plan& plan : PlansOf(SpecOf(Collective::kBarrier, 0), "pairwise", 5)) {
    EXPECT_EQ(StepsOf(plan, StepKind::kSend), 4);
    EXPECT_EQ(WireBytes(plan), 4);
  }
}

TEST(Chains, SendEveryByteOnceInPieces) {
  constexpr std::int64_t kCount = 1 << 20;
  for (const Collective collective : {Collective::kBroadcast, Collective::kReduce}) {
    CollectiveSpec spec = SpecOf(collective, kCount);
    spec.root = 1;
    for (const Plan& plan : PlansOf(spec, "chain", 4)) {
      const bool is_end = collective == Collective::kBroadcast ? plan.rank == 0 : plan.rank == spec.root;
      const bool is_start = collective == Collective::kBroadcast ? plan.rank == spec.root : plan.rank == 0;
      EXPECT_EQ(WireBytes(plan), is_end ? 0 : kCount * kBytesOfF32) << plan.rank;
      EXPECT_EQ(StepsOf(plan, StepKind::kSend), is_end ? 0 : 64) << plan.rank;
      EXPECT_EQ(StepsOf(plan, StepKind::kRecv), is_start ? 0 : 64) << plan.rank;
    }
  }
}

}  // namespace
}  // namespace tutti
