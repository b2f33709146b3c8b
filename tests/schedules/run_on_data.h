// Runs a schedule on all ranks of a world, on data, and compares every element of every output.
#ifndef TESTS_SCHEDULES_RUN_ON_DATA_H_
#define TESTS_SCHEDULES_RUN_ON_DATA_H_

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "tests/harness/expected_results.h"
#include "tests/kernels/differences.h"
#include "tests/schedules/sequential_executor.h"
#include "tutti/schedule.h"

namespace tutti {

struct CallCase {
  CollectiveSpec spec;     // without counts
  std::int64_t count = 0;  // see SpecOf
  int size = 1;
  PlanOptions options;
};

// A fatal failure tells which element of which rank is wrong, or who waits for what.
inline void ExpectRightResults(const Schedule& schedule, const CallCase& call, SequentialExecutor::Order order) {
  std::vector<Plan> plans;
  std::vector<Bytes> ins;
  std::vector<Bytes> outs;
  for (Rank rank = 0; rank < call.size; ++rank) {
    const CollectiveSpec spec = SpecOf(call.spec, call.count, rank, call.size);
    absl::StatusOr<Plan> plan = BuildPlan(schedule, spec, rank, call.size, call.options);
    ASSERT_TRUE(plan.ok()) << plan.status() << ", " << ToString(spec) << " of " << call.size << " ranks";
    Bytes in(static_cast<std::size_t>(plan->in_bytes), kGarbage);
    Bytes out(static_cast<std::size_t>(plan->out_bytes), kGarbage);
    const std::int64_t inputs = InputCount(spec, rank, call.size);
    const bool own_block = spec.in_place && inputs < OutputCount(spec, rank, call.size);
    FillInput(spec, rank, spec.in_place ? out.data() : in.data(), own_block ? rank * call.count : 0, inputs);
    plans.push_back(*std::move(plan));
    ins.push_back(std::move(in));
    outs.push_back(std::move(out));
  }

  SequentialExecutor executor(plans, std::move(ins), std::move(outs), order);
  executor.SetFactors([&](Rank rank) { return FactorOf(call.spec, rank); });
  ASSERT_EQ(executor.Run(), "") << ToString(plans[0].spec) << " of " << call.size << " ranks";

  for (Rank rank = 0; rank < call.size; ++rank) {
    const CollectiveSpec& spec = plans[rank].spec;
    const std::int64_t outputs = OutputCount(spec, rank, call.size);
    const bool own_block = spec.in_place && outputs < InputCount(spec, rank, call.size);
    Bytes expected(static_cast<std::size_t>(outputs * SizeOf(spec.dtype)));
    FillOutput(spec, call.count, rank, call.size, expected.data());
    const std::byte* const begin = executor.out(rank).data() + (own_block ? rank * call.count * SizeOf(spec.dtype) : 0);
    ASSERT_EQ(kernels::Differences(spec.dtype, begin, expected.data(), outputs), "")
        << ToString(spec) << ", rank " << rank << " of " << call.size;
  }
}

}  // namespace tutti

#endif  // TESTS_SCHEDULES_RUN_ON_DATA_H_
