// The schedule of docs/adding_a_schedule.md works as it stands there.
#include <gtest/gtest.h>

#include "tests/schedules/run_on_data.h"
#include "tutti/schedule.h"

// Under a name of its own, so that a reader who follows the page can add the schedule to the library.
#undef TUTTI_SCHEDULE
#define TUTTI_SCHEDULE(collective, name) constexpr ::tutti::Schedule kScheduleOfThePage
#include "docs/examples/schedules/all_gather/toy.cc"

namespace tutti {
namespace {

TEST(ToySchedule, GivesRightResults) {
  for (int size : {1, 2, 3, 5, 8}) {
    for (bool in_place : {false, true}) {
      CallCase call{.spec = {}, .count = 53, .size = size, .options = {.segment_bytes = 64}};
      call.spec.collective = Collective::kAllGather;
      call.spec.in_place = in_place;
      ExpectRightResults(kScheduleOfThePage, call, SequentialExecutor::Order::kLastToFirst);
    }
  }
}

}  // namespace
}  // namespace tutti
