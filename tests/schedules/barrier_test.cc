// No rank passes a barrier before the last rank has come.
#include <gtest/gtest.h>

#include <vector>

#include "tests/schedules/sequential_executor.h"
#include "tutti/schedule.h"

namespace tutti {
namespace {

TEST(Barrier, HoldsEveryRankUntilTheLastHasCome) {
  for (const Schedule* schedule : AllSchedules()) {
    if (schedule->collective != Collective::kBarrier) continue;
    for (int size : {2, 3, 4, 5, 7, 8, 17}) {
      CollectiveSpec spec;
      spec.collective = Collective::kBarrier;
      std::vector<Plan> plans;
      for (Rank rank = 0; rank < size; ++rank) {
        absl::StatusOr<Plan> plan = BuildPlan(*schedule, spec, rank, size, {.peers_mapped = true});
        ASSERT_TRUE(plan.ok()) << plan.status();
        plans.push_back(*std::move(plan));
      }
      for (Rank late = 0; late < size; ++late) {
        const std::vector<Bytes> nothing(static_cast<std::size_t>(size));
        SequentialExecutor executor(plans, nothing, nothing, SequentialExecutor::Order::kLastToFirst);
        executor.Run(/*held=*/late);
        for (Rank rank = 0; rank < size; ++rank) EXPECT_FALSE(executor.ended(rank)) << schedule->name << " " << rank;
        EXPECT_EQ(executor.Run(), "");
      }
    }
  }
}

}  // namespace
}  // namespace tutti
