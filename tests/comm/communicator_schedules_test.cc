// Conformance: every schedule of this build, over every transport, on real data.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/comm/checked_call.h"
#include "tests/harness/sweeps.h"
#include "tests/harness/world.h"
#include "tutti/schedule.h"

namespace tutti {
namespace {

using Case = std::tuple<std::string, const Schedule*>;

class CollectivesTest : public ::testing::TestWithParam<Case> {};

TEST_P(CollectivesTest, EveryWorldCountAndPlacement) {
  const std::string& transport = std::get<0>(GetParam());
  const Schedule* const schedule = std::get<1>(GetParam());
  if (schedule->collective == Collective::kSend || schedule->collective == Collective::kRecv) {
    GTEST_SKIP() << "point to point: see communicator_test.cc";
  }
  int ranks = 0;
  std::atomic<int> served = 0;
  std::atomic<bool> mapped = false;
  for (const int size : SweptWorlds({1, 2, 3, 4, 5, 7, 8})) {
    ranks += size;
    RunWorld(size, {.transport = transport}, [&](Communicator& comm) {
      std::vector<std::int64_t> counts = {0, 1, size - 1, size, size + 1, 997};
      if (size <= 3) counts.push_back(100'003);
      if (schedule->collective == Collective::kBarrier) counts = {0};
      if (size > 1 && comm.plan_options().all_mapped()) mapped = true;
      for (const std::int64_t count : counts) {
        for (const bool in_place : {false, true}) {
          const CollectiveSpec spec = {.collective = schedule->collective,
                                       .op = count % 2 == 0 ? ReduceOp::kSum : ReduceOp::kAvg,
                                       .root = static_cast<Rank>(count % size),
                                       .in_place = in_place};
          CollectiveSpec probe = SpecOf(spec, count, comm.rank(), size);
          if (!Validate(probe, comm.rank(), size).ok()) continue;  // the collective has no in-place form
          if (!schedule->supports(probe, size, comm.plan_options()).ok()) continue;
          ++served;
          CheckedCall(comm, schedule, spec, count, /*arena=*/true);
          CheckedCall(comm, schedule, spec, count, /*arena=*/false);
        }
      }
    });
  }
  const bool needs_mapped =
      !schedule->supports(SpecOf({.collective = schedule->collective}, 1, 0, 2), 2, {.peers_mapped = false}).ok();
  if (needs_mapped && !mapped) GTEST_SKIP() << "the ranks of this world map no peers";
  // Each schedule has served each rank at least one call for each of the counts.
  EXPECT_GE(served, ranks * (schedule->collective == Collective::kBarrier ? 1 : 5));
}

TEST_P(CollectivesTest, EveryTypeAndOperator) {
  const std::string& transport = std::get<0>(GetParam());
  const Schedule* const schedule = std::get<1>(GetParam());
  if (schedule->collective == Collective::kSend || schedule->collective == Collective::kRecv) {
    GTEST_SKIP() << "point to point: see communicator_test.cc";
  }
  if (schedule->collective == Collective::kBarrier) GTEST_SKIP() << "moves no elements";
  RunWorld(3, {.transport = transport}, [&](Communicator& comm) {
    for (const DType dtype : kAllDTypes) {
      for (const ReduceOp op : kAllReduceOps) {
        if (Reduces(schedule->collective) ? !HasOp(dtype, op) : op != ReduceOp::kSum) continue;
        for (const std::int64_t count : {5, 261}) {  // bytes: below and above what is copied to scratch
          for (const bool in_place : {false, true}) {
            if (in_place && !HasInPlaceForm(schedule->collective)) continue;
            const CollectiveSpec spec = {
                .collective = schedule->collective, .dtype = dtype, .op = op, .root = 1, .in_place = in_place};
            if (!schedule->supports(SpecOf(spec, count, comm.rank(), 3), 3, comm.plan_options()).ok()) continue;
            CheckedCall(comm, schedule, spec, count, /*arena=*/in_place == (count > 5));
          }
        }
      }
    }
  });
}

// Every schedule that serves host memory.
std::vector<const Schedule*> Schedules() {
  std::vector<const Schedule*> schedules = {AllSchedules().begin(), AllSchedules().end()};
  std::erase_if(schedules, [](const Schedule* schedule) {
    const CollectiveSpec probe = SpecOf({.collective = schedule->collective}, 1, 0, 2);
    return !schedule->supports(probe, 2, {.peers_mapped = true}).ok();
  });
  return schedules;
}

// Rank 3 writes its block at the end of the root's output, 30 MB further than any other rank has memory: rank 1's
// buffer at the end of its region is no mistake.
TEST(SmallRegionTest, ABufferMayLieAtItsEndWhateverOthersTouchAtTheRoot) {
  constexpr std::int64_t kBlock = 10 << 20;
  RunWorld(4, {.region_bytes = 64 << 20}, [&](Communicator& comm) {
    ASSERT_TRUE(comm.plan_options().all_mapped());
    const bool is_root = comm.rank() == 0;
    const absl::StatusOr<Buffer> before = comm.Allocate(comm.rank() == 1 ? 3 * kBlock : 1);
    absl::StatusOr<Buffer> mine = comm.Allocate(is_root ? 4 * kBlock : kBlock);
    ASSERT_TRUE(before.ok() && mine.ok()) << before.status() << mine.status();
    std::byte* const data = mine->data();
    std::fill_n(data, kBlock, std::byte{static_cast<unsigned char>(comm.rank() + 1)});
    const CallOptions direct = {.schedule = *FindSchedule(Collective::kGather, "direct")};
    ASSERT_EQ(comm.Gather(data, data, kBlock, DType::kU8, 0, direct).Wait(), absl::OkStatus());
    for (int rank = 0; is_root && rank < 4; ++rank) {
      EXPECT_EQ(data[rank * kBlock + kBlock - 1], std::byte{static_cast<unsigned char>(rank + 1)});
    }
  });
}

INSTANTIATE_TEST_SUITE_P(, CollectivesTest,
                         ::testing::Combine(::testing::ValuesIn(WorldTransports()), ::testing::ValuesIn(Schedules())),
                         [](const auto& test) {
                           const Schedule& schedule = *std::get<1>(test.param);
                           return absl::StrCat(std::get<0>(test.param), "_", Name(schedule.collective), "_",
                                               schedule.name);
                         });

}  // namespace
}  // namespace tutti
