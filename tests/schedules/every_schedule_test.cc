// Every schedule of this build, over worlds, counts, in place and out of place, dtypes and operators.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/harness/calls.h"
#include "tests/harness/native_machine.h"
#include "tests/harness/sweeps.h"
#include "tests/schedules/run_on_data.h"
#include "tutti/schedule.h"

namespace tutti {
namespace {

class EverySchedule : public testing::TestWithParam<const Schedule*> {};

// On all nodes that the schedule is for.
void ExpectRightResultsOnNodes(const Schedule& schedule, CallCase call, SequentialExecutor::Order order) {
  for (const std::vector<int>& nodes : NodesFor(schedule, call.size)) {
    call.options.nodes = nodes;
    ExpectRightResults(schedule, call, order);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST_P(EverySchedule, GivesRightResultsForEveryWorldAndCount) {
  const Schedule& schedule = *GetParam();
  for (int size : SweptWorlds({1, 2, 3, 4, 5, 7, 8, 16, 17})) {
    for (std::int64_t count : {0, 1, size - 1, size, size + 1, 53, 331}) {
      for (bool in_place : {false, true}) {
        if (in_place && !HasInPlaceForm(schedule.collective)) continue;
        CallCase call{.spec = {},
                      .count = count,
                      .size = size,
                      .options = WithNative({.segment_bytes = 64, .peers_mapped = true})};
        call.spec.collective = schedule.collective;
        call.spec.in_place = in_place;
        if (Reduces(schedule.collective)) call.spec.dtype = count % 2 == 0 ? DType::kF32 : DType::kBF16;
        if (schedule.collective != Collective::kBarrier) call.spec.root = static_cast<Rank>(count % size);
        if (count % 3 == 1) call.spec.op = ReduceOp::kAvg;
        ExpectRightResultsOnNodes(
            schedule, call,
            in_place ? SequentialExecutor::Order::kLastToFirst : SequentialExecutor::Order::kFirstToLast);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(EverySchedule, GivesRightResultsForEveryDTypeAndOp) {
  const Schedule& schedule = *GetParam();
  for (int size : kShortSweeps ? SweptWorlds({3, 4}) : SweptWorlds({2, 3, 5, 8})) {
    for (DType dtype : kAllDTypes) {
      for (ReduceOp op : kAllReduceOps) {
        if (Reduces(schedule.collective) ? !HasOp(dtype, op) : op != ReduceOp::kSum) continue;
        CallCase call{
            .spec = {}, .count = 53, .size = size, .options = WithNative({.segment_bytes = 64, .peers_mapped = true})};
        call.spec.collective = schedule.collective;
        call.spec.dtype = dtype;
        call.spec.op = op;
        // A native transport does not reduce all types.
        const CollectiveSpec spec = SpecOf(call.spec, call.count, 0, size);
        if (schedule.name == "native" && !schedule.supports(spec, size, call.options).ok()) continue;
        ExpectRightResultsOnNodes(schedule, call, SequentialExecutor::Order::kLastToFirst);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Buffers longer than the direct schedules reduce in one round, of several slices, with chunks that are no whole
// segments.
TEST_P(EverySchedule, GivesRightResultsForLongBuffers) {
  const Schedule& schedule = *GetParam();
  int served = 0;
  for (int size : {2, 3, kShortSweeps ? 4 : 8}) {
    for (auto [dtype, op] : {std::pair{DType::kF32, ReduceOp::kSum}, {DType::kBF16, ReduceOp::kAvg}}) {
      for (bool in_place : {false, true}) {
        if (in_place && !HasInPlaceForm(schedule.collective)) continue;
        CallCase call{.spec = {},
                      .count = 9973,
                      .size = size,
                      .options = WithNative({.segment_bytes = 1000, .peers_mapped = true})};
        call.spec.collective = schedule.collective;
        call.spec.dtype = dtype;
        call.spec.op = op;
        call.spec.in_place = in_place;
        call.spec.root = schedule.collective == Collective::kBarrier ? 0 : size - 1;
        const CollectiveSpec spec = SpecOf(call.spec, call.count, 0, size);
        const std::vector<std::vector<int>> nodes = NodesFor(schedule, size);
        if (nodes.empty()) continue;
        PlanOptions options = call.options;
        options.nodes = nodes[0];
        // A schedule may refuse buffers that are too long for it.
        if (absl::IsUnimplemented(schedule.supports(spec, size, options))) continue;
        ++served;
        ExpectRightResultsOnNodes(schedule, call, SequentialExecutor::Order::kFirstToLast);
        if (HasFatalFailure()) return;
      }
    }
  }
  if (served == 0) GTEST_SKIP() << "a schedule for short buffers";
}

std::vector<const Schedule*> SchedulesOfWholeWorlds() {
  std::vector<const Schedule*> schedules;
  for (const Schedule* schedule : AllSchedules()) {
    if (schedule->collective != Collective::kSend && schedule->collective != Collective::kRecv) {
      schedules.push_back(schedule);
    }
  }
  return schedules;
}

std::string NameOf(const testing::TestParamInfo<const Schedule*>& schedule) {
  return absl::StrCat(Name(schedule.param->collective), "_", schedule.param->name);
}

INSTANTIATE_TEST_SUITE_P(Schedules, EverySchedule, testing::ValuesIn(SchedulesOfWholeWorlds()), NameOf);

}  // namespace
}  // namespace tutti
