#include "engine/program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

#include "tutti/plan_builder.h"
#include "tutti/schedule.h"

namespace tutti {
namespace {

// Whether a direct all-reduce of `bytes` in fp32 on two ranks stores its results past the cache.
bool StoresPastCache(std::int64_t bytes, bool in_place) {
  const CollectiveSpec spec{.collective = Collective::kAllReduce, .count = bytes / 4, .in_place = in_place};
  absl::StatusOr<Plan> plan = BuildPlan(**FindSchedule(spec.collective, "direct"), spec, 0, 2, {.peers_mapped = true});
  EXPECT_TRUE(plan.ok()) << plan.status();
  const std::shared_ptr<const Program> program = Compile(*std::move(plan));
  const auto reduce = std::find_if(program->instructions.begin(), program->instructions.end(),
                                   [](const Instruction& i) { return i.kind == StepKind::kReduce; });
  return reduce->streaming;
}

TEST(Program, StoresPastTheCacheWhatIsLargeAndWasNotJustRead) {
  EXPECT_FALSE(StoresPastCache(1 << 20, /*in_place=*/false));
  EXPECT_FALSE(StoresPastCache(1 << 20, /*in_place=*/true));
  EXPECT_TRUE(StoresPastCache(64 << 20, /*in_place=*/false));
  EXPECT_FALSE(StoresPastCache(64 << 20, /*in_place=*/true));
}

// Whether a program of rank 0 of two, in which `author` has written one copy, touches buffers of rank 1.
bool TouchesBuffers(const std::function<void(PlanBuilder&, const Ref& scratch)>& author) {
  PlanBuilder b("test", {.collective = Collective::kAllReduce, .count = 8}, 0, 2, {.peers_mapped = true});
  author(b, b.Scratch(DType::kF32, 8));
  absl::StatusOr<Plan> plan = std::move(b).Build();
  EXPECT_TRUE(plan.ok()) << plan.status();
  return Compile(*std::move(plan), /*shares_only_scratch=*/true)->touches_buffers_of_peers;
}

TEST(Program, ToReadScratchOfPeersIsNotToTouchTheirBuffers) {
  EXPECT_FALSE(TouchesBuffers([](PlanBuilder& b, const Ref& scratch) { b.Copy(b.out(), scratch.At(1)); }));
  EXPECT_TRUE(TouchesBuffers([](PlanBuilder& b, const Ref& scratch) { b.Copy(scratch.At(1), b.in()); }));
  EXPECT_TRUE(TouchesBuffers([](PlanBuilder& b, const Ref&) { b.Copy(b.out(), b.in().At(1)); }));
}

// A native step of a part of the world: what an executor has to hand to its transport.
TEST(Program, ANativeInstructionKnowsItsCall) {
  PlanBuilder b("test", {.collective = Collective::kAllReduce, .dtype = DType::kI32, .count = 8}, 2, 4, {});
  const CollectiveSpec part{.collective = Collective::kGather, .dtype = DType::kI32, .count = 3, .root = 1};
  b.WithinGroup({3, 2}, part, b.in().Elements(0, 3), b.out().Elements(0, 6),
                [](PlanBuilder& inner) { inner.Native(inner.spec(), inner.in(), inner.out()); });
  b.Native({.collective = Collective::kAllReduce, .dtype = DType::kI32, .op = ReduceOp::kAvg, .count = 8}, b.in(),
           b.out());
  const std::shared_ptr<const Program> program = Compile(*std::move(b).Build());
  EXPECT_EQ(program->num_natives, 2);
  EXPECT_FALSE(program->is_short);
  EXPECT_FALSE(program->uses_lane);
  EXPECT_EQ(program->wire_bytes, WireBytes(program->plan));
  const Instruction& gather = program->instructions[0];
  EXPECT_EQ(gather.kind, StepKind::kNative);
  EXPECT_EQ(gather.collective, Collective::kGather);
  EXPECT_EQ(gather.src_type, DType::kI32);
  EXPECT_EQ(gather.count, 3);
  EXPECT_EQ(gather.group, 1);
  EXPECT_EQ(gather.peer, 1);  // a place in the group
  EXPECT_EQ(gather.wire_bytes, 12);
  const Instruction& average = program->instructions[1];
  EXPECT_EQ(average.op, ReduceOp::kAvg);
  EXPECT_EQ(average.divisor, 4);
  EXPECT_EQ(average.group, 0);
  EXPECT_EQ(average.count, 8);
  EXPECT_TRUE(average.touches_output);
}

}  // namespace
}  // namespace tutti
