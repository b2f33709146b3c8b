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

}  // namespace
}  // namespace tutti
