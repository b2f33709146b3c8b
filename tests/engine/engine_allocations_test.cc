// After a plan is bound, a run allocates nothing: this test counts allocations.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/harness/count_allocations.h"
#include "tests/harness/world.h"

namespace tutti {
namespace {

class AllocationsTest : public ::testing::TestWithParam<const Schedule*> {};

TEST_P(AllocationsTest, ARunOfABoundPlanAllocatesNothing) {
  RunWorld(3, [](Communicator& comm) {
    constexpr std::int64_t kCount = 30'000;
    absl::StatusOr<Buffer> buffer = comm.Allocate(kCount * 4);
    ASSERT_TRUE(buffer.ok());
    const CollectiveSpec spec = {.op = ReduceOp::kAvg, .count = kCount, .in_place = true};
    absl::StatusOr<BoundPlan> bound = comm.Bind(spec, {.out = buffer->data()}, {.schedule = GetParam()});
    ASSERT_TRUE(bound.ok()) << bound.status();
    const auto runs = [&](int count) {
      for (int i = 0; i < count; ++i) EXPECT_EQ(bound->Start({.caller_drives = true}).Wait(), absl::OkStatus());
    };
    runs(10);
    EXPECT_EQ(AllocationsDuring(comm, [&] { runs(100); }), 0);
  });
}

std::vector<const Schedule*> AllReduces() {
  std::vector<const Schedule*> all;
  for (const Schedule* schedule : AllSchedules()) {
    const bool serves = schedule->supports({.count = 1}, 3, {.peers_mapped = true}).ok();
    if (schedule->collective == Collective::kAllReduce && serves) all.push_back(schedule);
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(, AllocationsTest, ::testing::ValuesIn(AllReduces()),
                         [](const auto& test) { return std::string(test.param->name); });

}  // namespace
}  // namespace tutti
