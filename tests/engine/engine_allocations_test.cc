// After a plan is bound, a run allocates nothing and takes no lock: allocations are counted here.
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <cstdlib>
#include <new>
#include <vector>

#include "tests/harness/world.h"

namespace {

thread_local std::int64_t allocations = 0;

}  // namespace

// Replaces the program's allocator: every new is counted for the thread that asks.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"  // this new and this delete do match
void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace tutti {
namespace {

class AllocationsTest : public ::testing::TestWithParam<const Schedule*> {};

TEST_P(AllocationsTest, ARunOfABoundPlanAllocatesNothing) {
  RunWorld(3, [](Communicator& comm) {
    constexpr std::int64_t kCount = 30'000;
    absl::StatusOr<Buffer> buffer = comm.Allocate(kCount * 4);
    ASSERT_TRUE(buffer.ok());
    absl::StatusOr<Plan> plan =
        comm.PlanFor({.op = ReduceOp::kAvg, .count = kCount, .in_place = true}, {.schedule = GetParam()});
    ASSERT_TRUE(plan.ok()) << plan.status();
    absl::StatusOr<BoundPlan> bound = comm.Bind(*std::move(plan), {.out = buffer->data()});
    ASSERT_TRUE(bound.ok()) << bound.status();
    const auto run = [&] { ASSERT_EQ(bound->Start({.caller_drives = true}).Wait(), absl::OkStatus()); };
    for (int warm_up = 0; warm_up < 10; ++warm_up) run();
    const std::int64_t before = allocations;
    for (int round = 0; round < 100; ++round) run();
    EXPECT_EQ(allocations - before, 0);
  });
}

std::vector<const Schedule*> AllReduces() {
  std::vector<const Schedule*> all;
  for (const Schedule* schedule : AllSchedules()) {
    if (schedule->collective == Collective::kAllReduce) all.push_back(schedule);
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(, AllocationsTest, ::testing::ValuesIn(AllReduces()),
                         [](const auto& test) { return std::string(test.param->name); });

}  // namespace
}  // namespace tutti
