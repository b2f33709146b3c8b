// The size of a plan is bounded, whatever the count.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/harness/calls.h"
#include "tutti/schedule.h"

namespace tutti {
namespace {

// The largest call that is valid.
CollectiveSpec LargestCall(Collective collective, Rank rank, int size) {
  const std::int64_t block = (std::int64_t{1} << 45) / size;  // elements of f32
  CollectiveSpec spec{.collective = collective};
  if (collective == Collective::kAllToAllV) {
    spec.send_counts.assign(static_cast<std::size_t>(size), block);
    spec.recv_counts = spec.send_counts;
  } else if (collective != Collective::kBarrier) {
    spec.count = block;
  }
  if (collective == Collective::kSend || collective == Collective::kRecv) spec.root = (rank + 1) % size;
  return spec;
}

std::uint32_t MostMessagesWithOneRank(const Plan& plan) {
  std::uint32_t most = 0;
  for (const Step& step : plan.steps) {
    if (step.kind == StepKind::kSend || step.kind == StepKind::kRecv) most = std::max(most, step.ordinal + 1);
  }
  return most;
}

class PlanSizeSlow : public testing::TestWithParam<const Schedule*> {};

TEST_P(PlanSizeSlow, IsBoundedAndSoAreTheMessagesBetweenTwoRanks) {
  const Schedule& schedule = *GetParam();
  for (int size : {2, 4, 5}) {
    const std::vector<std::vector<int>> nodes = NodesFor(schedule, size);
    for (bool mapped : {false, true}) {
      for (Rank rank : {0, size - 1}) {
        const CollectiveSpec spec = LargestCall(schedule.collective, rank, size);
        const PlanOptions options{.peers_mapped = mapped, .nodes = nodes.empty() ? std::vector<int>() : nodes[0]};
        if (!schedule.supports(spec, size, options).ok()) continue;
        const absl::StatusOr<Plan> plan = BuildPlan(schedule, spec, rank, size, options);
        ASSERT_TRUE(plan.ok()) << plan.status();
        EXPECT_LT(MostMessagesWithOneRank(*plan), 1u << 18) << size << " ranks";  // see Channel::TagOf
        EXPECT_LT(plan->steps.size(), std::size_t{1} << 20) << size << " ranks";
        // A signal's number has 16 bits, whose largest value means that a rank refuses the call.
        const auto signals = std::count_if(plan->steps.begin(), plan->steps.end(),
                                           [](const Step& step) { return step.kind == StepKind::kSignal; });
        EXPECT_LT(signals, std::numeric_limits<std::uint16_t>::max()) << size << " ranks";
      }
    }
  }
}

std::string NameOf(const testing::TestParamInfo<const Schedule*>& schedule) {
  return absl::StrCat(Name(schedule.param->collective), "_", schedule.param->name);
}

INSTANTIATE_TEST_SUITE_P(Schedules, PlanSizeSlow, testing::ValuesIn(AllSchedules().begin(), AllSchedules().end()),
                         NameOf);

}  // namespace
}  // namespace tutti
