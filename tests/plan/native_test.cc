// Native steps in plans: how the builder writes them, what they move, and what they cost.
#include "tutti/native.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "plan/player.h"
#include "tests/harness/native_machine.h"
#include "tutti/cost.h"
#include "tutti/print.h"
#include "tutti/schedule.h"
#include "tutti/selector.h"

namespace tutti {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Author = std::function<void(PlanBuilder&)>;

absl::StatusOr<Plan> Build(const CollectiveSpec& spec, Rank rank, int size, const Author& author,
                           const PlanOptions& options = {}) {
  PlanBuilder b("test", spec, rank, size, options);
  author(b);
  return std::move(b).Build();
}

TEST(NativeTest, GroupsAreNamedOnceInThePlan) {
  const CollectiveSpec part{.count = 2};
  const Plan plan = *Build({.count = 8}, 2, 4, [&](PlanBuilder& b) {
    const auto native = [&](std::vector<Rank> group, int at) {
      b.WithinGroup(group, part, b.in().Elements(2 * at, 2), b.out().Elements(2 * at, 2),
                    [](PlanBuilder& inner) { inner.Native(inner.spec(), inner.in(), inner.out()); });
    };
    native({2, 0}, 0);
    native({0, 1, 2, 3}, 1);
    native({2, 0}, 2);
    native({0, 2}, 3);
  });
  EXPECT_THAT(plan.groups, ElementsAre(std::vector<Rank>{2, 0}, std::vector<Rank>{0, 2}));
  std::vector<int> groups, ordinals;
  for (const Step& step : plan.steps) {
    groups.push_back(step.group);
    ordinals.push_back(static_cast<int>(step.ordinal));
  }
  EXPECT_THAT(groups, ElementsAre(1, 0, 1, 2));
  EXPECT_THAT(ordinals, ElementsAre(0, 0, 1, 0));
  EXPECT_EQ(NativePlaceOf(plan, plan.steps[0], 2), 0);
  EXPECT_EQ(NativePlaceOf(plan, plan.steps[3], 2), 1);
  EXPECT_EQ(NativePlaceOf(plan, plan.steps[3], 1), -1);
  EXPECT_EQ(NativeSizeOf(plan, plan.steps[1]), 4);
  // Each native step follows the one before it, although they touch different bytes.
  for (StepId id = 1; id < plan.steps.size(); ++id) {
    EXPECT_THAT(plan.deps_of(plan.steps[id]), ElementsAre(id - 1)) << id;
  }
}

TEST(NativeTest, AStepKnowsItsCall) {
  for (const Collective collective : kAllCollectives) {
    if (!HasNativeForm(collective)) continue;
    CollectiveSpec spec{.collective = collective, .dtype = DType::kI32, .count = 5};
    if (HasRoot(collective)) spec.root = 2;
    for (Rank rank = 0; rank < 4; ++rank) {
      const Plan plan = *Build(spec, rank, 4, [](PlanBuilder& b) { b.Native(b.spec(), b.in(), b.out()); });
      ASSERT_EQ(plan.steps.size(), 1u);
      EXPECT_EQ(NativeSpecOf(plan, plan.steps[0]), spec) << ToText(plan, plan.steps[0]);
      EXPECT_EQ(WireBytes(plan), NativeBytes(spec, rank, 4));
    }
  }
  EXPECT_EQ(NativeBytes({.collective = Collective::kAllReduce, .count = 8}, 0, 4), 2 * 24);
  EXPECT_EQ(NativeBytes({.collective = Collective::kGather, .count = 8, .root = 1}, 1, 4), 3 * 32);
  EXPECT_EQ(NativeBytes({.collective = Collective::kGather, .count = 8, .root = 1}, 0, 4), 32);
}

TEST(NativeTest, NoElementsMakeNoStep) {
  EXPECT_TRUE(Build({.count = 0}, 0, 4, [](PlanBuilder& b) { b.Native(b.spec(), b.in(), b.out()); })->steps.empty());
}

TEST(NativeTest, LongRangesAreNotCut) {
  const Plan plan = *Build({.count = 1 << 20}, 0, 4, [](PlanBuilder& b) { b.Native(b.spec(), b.in(), b.out()); },
                           {.segment_bytes = 64});
  EXPECT_EQ(plan.steps.size(), 1u);
}

TEST(NativeTest, MisuseIsRemembered) {
  const auto error = [](const Author& author) {
    return std::string(Build({.count = 8}, 1, 4, author, {.peers_mapped = true}).status().message());
  };
  const CollectiveSpec half{.count = 4};
  const auto first = [](PlanBuilder& b) { return b.in().Elements(0, 4); };
  EXPECT_THAT(error([&](PlanBuilder& b) { b.Native(half, b.in(), b.out()); }),
              HasSubstr("test, rank 1 of 4, step 0: native: srcs[0] has 8 and dsts[0] 8 elements, must have 4 and 4"));
  EXPECT_THAT(error([&](PlanBuilder& b) { b.Native({.dtype = DType::kI32, .count = 8}, b.in(), b.out()); }),
              HasSubstr("in[0,32) f32 must be of i32, the type of the native call"));
  EXPECT_THAT(error([&](PlanBuilder& b) { b.Native(half, first(b), b.out().Elements(0, 4).At(2)); }),
              HasSubstr("out@2[0,16) f32: a native step works in the memory of its own rank alone"));
  EXPECT_THAT(error([&](PlanBuilder& b) { b.Native(half, b.out().Elements(0, 4), b.out().Elements(2, 4)); }),
              HasSubstr("overlaps out[0,16) f32 other than all_reduce in place does"));
  EXPECT_THAT(error([&](PlanBuilder& b) { b.Native(half, first(b), b.in().Elements(4, 4)); }),
              HasSubstr("the input is read-only"));
  EXPECT_THAT(error([&](PlanBuilder& b) { b.Native({.collective = Collective::kBarrier}, {}, {}); }),
              HasSubstr("barrier has no native form"));
  EXPECT_THAT(error([&](PlanBuilder& b) { b.Native({.op = ReduceOp::kPremulSum, .count = 8}, b.in(), b.out()); }),
              HasSubstr("op premul_sum cannot be used"));
  const auto within_pair = [&](const CollectiveSpec& spec) {
    return error([&](PlanBuilder& b) {
      b.WithinGroup({1, 3}, spec, b.in(), b.out(),
                    [](PlanBuilder& part) { part.Native(part.spec(), part.in(), part.out()); });
    });
  };
  EXPECT_EQ(within_pair({.count = 8}), "");
  EXPECT_THAT(within_pair({.op = ReduceOp::kAvg, .count = 8}),
              HasSubstr("avg would divide by 2, the number of ranks that take part, not by 4, the size of the world"));
  EXPECT_THAT(error([&](PlanBuilder& b) {
                b.WithinGroup({1}, {.count = 8}, b.in(), b.out(),
                              [](PlanBuilder& part) { part.Native(part.spec(), part.in(), part.out()); });
              }),
              HasSubstr("a collective of one rank is a Copy"));
}

std::vector<Plan> AllReduces(int size, std::int64_t count, const Author& before) {
  std::vector<Plan> plans;
  for (Rank rank = 0; rank < size; ++rank) {
    plans.push_back(*Build({.count = count}, rank, size, [&](PlanBuilder& b) {
      before(b);
      b.Native(b.spec(), b.in(), b.out());
    }));
  }
  return plans;
}

TEST(NativeCostTest, ACollectiveBeginsWhenItsLastRankComes) {
  CostModel model;
  model.memory_bytes_per_s = 100;
  model.step_s = 0.5;
  model.native_within_node = {.latency_s = 3, .bytes_per_s = 10};
  model.native_between_nodes = {.latency_s = 7, .bytes_per_s = 1};
  const std::vector<Plan> plain = AllReduces(4, 10, [](PlanBuilder&) {});
  EXPECT_DOUBLE_EQ(Play(plain, {}, model), 0.5 + 3 + 6);
  EXPECT_DOUBLE_EQ(Play(plain, {0, 0, 1, 1}, model), 0.5 + 7 + 60);
  EXPECT_DOUBLE_EQ(Play(absl::MakeConstSpan(plain).first(1), {}, model), 0.5 + 3 + 6);
  // Rank 2 copies first, for 0.8 s of memory traffic, and all wait for it.
  const std::vector<Plan> late = AllReduces(4, 10, [](PlanBuilder& b) {
    if (b.rank() == 2) b.Copy(b.out(), b.in());
  });
  EXPECT_DOUBLE_EQ(Play(late, {}, model), (0.5 + 0.8) + 0.5 + 3 + 6);
  const absl::StatusOr<Cost> cost = CostOf(plain, model);
  ASSERT_TRUE(cost.ok()) << cost.status();
  EXPECT_DOUBLE_EQ(cost->seconds, 0.5 + 3 + 6);
  EXPECT_EQ(cost->wire_bytes, 60);
  EXPECT_EQ(cost->memory_bytes, 0);
  EXPECT_EQ(cost->messages, 0);
}

TEST(NativeCostTest, NothingIsPredictedWithoutALink) {
  const std::vector<Plan> plans = AllReduces(4, 10, [](PlanBuilder&) {});
  EXPECT_THAT(std::string(CostOf(plans, DefaultCostModel()).status().message()),
              HasSubstr("the cost model says nothing of native collectives among these ranks"));
  const PlanOptions near = WithNative({.nodes = {0, 0, 1, 1}}, kFastNative, {});
  const Schedule& native = **FindSchedule(Collective::kAllReduce, "native");
  EXPECT_EQ(PredictSeconds(native, {.count = 10}, 4, near).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(PredictSeconds(native, {.count = 10}, 2, WithNative({.nodes = {0, 0}}, kFastNative, {})).ok());
}

TEST(NativeCostTest, TheModelIsPrinted) {
  EXPECT_THAT(ToString(ModelWithNative({.latency_s = 10e-6, .bytes_per_s = 200e9}, {})),
              HasSubstr("; native collectives take 10.00 µs + bytes / 200.0 GB/s inside a node"));
  EXPECT_THAT(ToString(DefaultCostModel()), testing::Not(HasSubstr("native")));
}

}  // namespace
}  // namespace tutti
