// The schedule that reduces of docs/adding_a_schedule.md works as it stands there.
#include <gtest/gtest.h>

#include "tests/schedules/run_on_data.h"
#include "tutti/schedule.h"
#include "tutti/schedules/partials.h"

// Under a name of its own, so that a reader who follows the page can add the schedule to the library.
#undef TUTTI_SCHEDULE
#define TUTTI_SCHEDULE(collective, name) constexpr ::tutti::Schedule kReducingScheduleOfThePage
#include "docs/examples/schedules/all_reduce/toy.cc"

namespace tutti {
namespace {

TEST(ReducingToySchedule, GivesRightResults) {
  for (int size : {1, 2, 3, 5, 8}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMax}) {
        CallCase call{.spec = {}, .count = 53, .size = size, .options = {.segment_bytes = 64}};
        call.spec.collective = Collective::kAllReduce;
        call.spec.dtype = dtype;
        call.spec.op = op;
        ExpectRightResults(kReducingScheduleOfThePage, call, SequentialExecutor::Order::kLastToFirst);
      }
    }
  }
}

}  // namespace
}  // namespace tutti
