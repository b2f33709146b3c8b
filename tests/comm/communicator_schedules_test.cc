// Conformance: every schedule of this build, over every transport, on real data.
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/comm/checked_call.h"
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
  std::atomic<int> served = 0;
  std::atomic<bool> mapped = false;
  for (const int size : {1, 2, 3, 4, 5, 7, 8}) {
    RunWorld(size, {.transport = transport}, [&](Communicator& comm) {
      std::vector<std::int64_t> counts = {0, 1, size - 1, size, size + 1, 997};
      if (size <= 3) counts.push_back(100'003);
      if (schedule->collective == Collective::kBarrier) counts = {0};
      if (size > 1 && comm.plan_options().peers_mapped) mapped = true;
      for (const std::int64_t count : counts) {
        for (const bool in_place : {false, true}) {
          const CollectiveSpec spec = {.collective = schedule->collective,
                                       .op = count % 2 == 0 ? ReduceOp::kSum : ReduceOp::kAvg,
                                       .root = static_cast<Rank>(count % size),
                                       .in_place = in_place};
          CollectiveSpec probe = SpecOf(spec, count, comm.rank(), size);
          if (!Validate(probe, comm.rank(), size).ok()) continue;  // no in-place form
          if (!schedule->supports(probe, size, comm.plan_options()).ok()) continue;
          ++served;
          CheckedCall(comm, schedule, spec, count, /*arena=*/true);
          CheckedCall(comm, schedule, spec, count, /*arena=*/false);
        }
      }
    });
  }
  if (schedule->supports == SupportsMappedPeers && !mapped) GTEST_SKIP() << "the ranks of this world map no peers";
  // Each schedule has served at least one call for each of the counts.
  EXPECT_GE(served, 30 * (schedule->collective == Collective::kBarrier ? 1 : 5));
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

std::vector<const Schedule*> Schedules() { return {AllSchedules().begin(), AllSchedules().end()}; }

INSTANTIATE_TEST_SUITE_P(, CollectivesTest,
                         ::testing::Combine(::testing::ValuesIn(WorldTransports()), ::testing::ValuesIn(Schedules())),
                         [](const auto& test) {
                           const Schedule& schedule = *std::get<1>(test.param);
                           return absl::StrCat(std::get<0>(test.param), "_", Name(schedule.collective), "_",
                                               schedule.name);
                         });

}  // namespace
}  // namespace tutti
