#include "engine/program.h"

#include <gtest/gtest.h>

#include <algorithm>

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

}  // namespace
}  // namespace tutti
