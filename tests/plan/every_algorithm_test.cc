// Level 0: the plans of every algorithm of this build, for every world, keep their promises.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tutti/algorithm.h"
#include "tutti/verify.h"

namespace tutti {
namespace {

class EveryAlgorithmTest : public ::testing::TestWithParam<const Algorithm*> {
 protected:
  void Sweep(int size, std::int64_t count, DType dtype, const PlanOptions& options) {
    const absl::StatusOr<Strategy> strategy = ParseStrategy(GetParam()->name);
    ASSERT_TRUE(strategy.ok()) << strategy.status();
    std::vector<Plan> plans;
    for (Rank rank = 0; rank < size; ++rank) {
      absl::StatusOr<Plan> plan = BuildPlan(*strategy, dtype, count, rank, size, options);
      if (absl::IsUnimplemented(plan.status())) return;
      ASSERT_TRUE(plan.ok()) << plan.status();
      plans.push_back(*std::move(plan));
    }
    const absl::Status status = Verify(plans);
    EXPECT_TRUE(status.ok()) << plans[0].name << ", " << size << " ranks, " << count << " " << Name(dtype) << ": "
                             << status;
  }
};

TEST_P(EveryAlgorithmTest, KeepsReplicasInStepInEveryWorld) {
  for (int size : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 32, 64}) {
    for (std::int64_t count : {0, 1, 97, 4096, 65537, 1 << 20}) {
      for (DType dtype : {DType::kF32, DType::kBF16}) {
        for (bool mapped : {false, true}) Sweep(size, count, dtype, {.peers_mapped = mapped});
        if (HasFailure()) return;
      }
    }
  }
}

std::string NameOf(const ::testing::TestParamInfo<const Algorithm*>& algorithm) {
  return std::string(algorithm.param->name);
}

INSTANTIATE_TEST_SUITE_P(All, EveryAlgorithmTest, ::testing::ValuesIn(AllAlgorithms().begin(), AllAlgorithms().end()),
                         NameOf);

}  // namespace
}  // namespace tutti
