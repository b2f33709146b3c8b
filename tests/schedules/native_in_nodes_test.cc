// Plans of algorithms whose nodes, or whose whole world, exchange by native collectives, on data.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/harness/native_machine.h"
#include "tests/schedules/sequential_executor.h"
#include "tutti/algorithm.h"

namespace tutti {
namespace {

// Runs `strategy` on buckets in which element i of rank r is r + i; every element must end as the average.
void ExpectAverages(const char* strategy, const std::vector<int>& nodes, const PlanOptions& options) {
  constexpr std::int64_t kCount = 4099;
  const int size = static_cast<int>(nodes.size());
  std::vector<Plan> plans;
  std::vector<Bytes> ins;
  std::vector<Bytes> outs;
  for (Rank rank = 0; rank < size; ++rank) {
    absl::StatusOr<Plan> plan = BuildPlan(*ParseStrategy(strategy), DType::kF32, kCount, rank, size, options);
    ASSERT_TRUE(plan.ok()) << plan.status();
    std::vector<float> values(kCount);
    for (std::int64_t i = 0; i < kCount; ++i) values[i] = static_cast<float>(rank + i);
    const auto* const bytes = reinterpret_cast<const std::byte*>(values.data());
    const Bytes bucket(bytes, bytes + kCount * 4);
    ins.push_back(plan->spec.in_place ? Bytes() : bucket);
    outs.push_back(plan->spec.in_place ? bucket : Bytes(kCount * 4, kGarbage));
    plans.push_back(*std::move(plan));
  }
  for (const Plan& plan : plans) {
    const auto is_native = [](const Step& step) { return step.kind == StepKind::kNative; };
    EXPECT_TRUE(std::any_of(plan.steps.begin(), plan.steps.end(), is_native)) << strategy << " of rank " << plan.rank;
  }
  SequentialExecutor executor(plans, std::move(ins), std::move(outs), SequentialExecutor::Order::kLastToFirst);
  ASSERT_EQ(executor.Run(), "") << strategy;
  for (Rank rank = 0; rank < size; ++rank) {
    const auto* const values = reinterpret_cast<const float*>(executor.out(rank).data());
    for (std::int64_t i = 0; i < kCount; ++i) {
      const float average = static_cast<float>(size - 1) / 2 + static_cast<float>(i);
      // Blocks of 8 bits are within 1/255 of the range of their block, twice.
      ASSERT_NEAR(values[i], average, absl::string_view(strategy) == "bytegrad" ? 40 : 0) << strategy << " " << rank;
    }
  }
}

TEST(NativeInNodes, AveragesOfAllRanksAreRight) {
  const std::vector<int> nodes = {0, 0, 1, 1};
  for (const char* strategy : {"gradient_allreduce:hierarchical=true", "async", "decentralized", "bytegrad"}) {
    ExpectAverages(strategy, nodes, WithNative({.nodes = nodes}, kFastNative, kSlowNative));
    ExpectAverages(strategy, nodes, WithNative({.nodes = nodes}));
    ExpectAverages(strategy, {0, 0, 0, 0}, WithNative({.peers_mapped = true}));
  }
}

}  // namespace
}  // namespace tutti
