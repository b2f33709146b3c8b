// A call knows how its runs have ended, however many there were.
#include "engine/failed_runs.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "absl/strings/str_cat.h"

namespace tutti {
namespace {

using absl::StatusCode;

absl::Status ErrorOf(std::uint32_t run) { return absl::AbortedError(absl::StrCat("run ", run)); }

// `count` runs from number `first` on, of which each `step`-th one fails.
void Fail(FailedRuns& runs, std::uint32_t first, std::uint32_t count, std::uint32_t step) {
  for (std::uint32_t i = 0; i < count; i += step) runs.Keep(first + i, ErrorOf(first + i));
}

TEST(FailedRuns, TellsFailedRunsFromOthers) {
  FailedRuns runs;
  EXPECT_EQ(runs.ResultOf(1, "plan"), absl::OkStatus());
  Fail(runs, 2, 4, 2);
  for (std::uint32_t run = 1; run < 8; ++run) {
    EXPECT_EQ(runs.ResultOf(run, "plan"), run == 2 || run == 4 ? ErrorOf(run) : absl::OkStatus()) << run;
  }
}

TEST(FailedRuns, KeepsTheFirstErrorOfARun) {
  FailedRuns runs;
  runs.Keep(3, ErrorOf(3));
  runs.Keep(3, absl::InternalError("later"));
  EXPECT_EQ(runs.ResultOf(3, "plan"), ErrorOf(3));
}

TEST(FailedRuns, SaysWhereAResultIsNotKnownAnyMore) {
  FailedRuns runs;
  Fail(runs, 10, FailedRuns::kMax, 1);
  EXPECT_EQ(runs.ResultOf(9, "plan"), absl::OkStatus());  // all errors are kept as yet
  Fail(runs, 10 + FailedRuns::kMax, 1, 1);
  const absl::Status forgotten = runs.ResultOf(10, "my plan");
  EXPECT_EQ(forgotten, absl::FailedPreconditionError("how run 10 of my plan has ended is not known any more: 16 later "
                                                     "runs have failed"));
  EXPECT_EQ(runs.ResultOf(9, "plan").code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(runs.ResultOf(11, "plan"), ErrorOf(11));
}

TEST(FailedRuns, DoNotCountForTheNextUserOfTheCall) {
  FailedRuns runs;
  Fail(runs, 1, 2 * FailedRuns::kMax, 1);
  runs.Clear();
  for (const std::uint32_t run : {1U, 20U, 40U}) EXPECT_EQ(runs.ResultOf(run, "plan"), absl::OkStatus()) << run;
}

TEST(FailedRuns, AreForgottenBeforeTheNumbersOfRunsWrapAround) {
  for (const std::uint32_t first : {1U, 0xFFFF'FFF0U}) {
    FailedRuns runs;
    Fail(runs, first, 2 * FailedRuns::kMax, 1);
    const std::uint32_t last = first + 2 * FailedRuns::kMax - 1;
    runs.BeginRun(last + FailedRuns::kRemembered - 1);
    EXPECT_EQ(runs.ResultOf(last, "plan"), ErrorOf(last));
    runs.BeginRun(last + FailedRuns::kRemembered);
    const std::uint32_t much_later = last + (1U << 31) + 5;
    for (const std::uint32_t run : {last, last + 1, much_later})
      EXPECT_EQ(runs.ResultOf(run, "plan"), absl::OkStatus());
  }
}

TEST(FailedRuns, AreForgottenThoughLaterOnesFail) {
  FailedRuns runs;
  Fail(runs, 1, 2 * FailedRuns::kMax, 1);  // some are not kept
  std::uint32_t run = 2 * FailedRuns::kMax;
  for (int i = 0; i < 3; ++i) {
    run += FailedRuns::kRemembered - 1;
    runs.BeginRun(run);
    runs.Keep(run, ErrorOf(run));
    EXPECT_EQ(runs.ResultOf(run - 1, "plan"), absl::OkStatus()) << i;
    EXPECT_EQ(runs.ResultOf(run, "plan"), ErrorOf(run)) << i;
  }
}

// The numbers wrap around to 0, which is a run like any other.
TEST(FailedRuns, KnowRunNumberZero) {
  FailedRuns runs;
  runs.Keep(0, ErrorOf(0));
  EXPECT_EQ(runs.ResultOf(0, "plan"), ErrorOf(0));
  EXPECT_EQ(runs.ResultOf(0xFFFF'FFFFU, "plan"), absl::OkStatus());
  EXPECT_EQ(runs.ResultOf(1, "plan"), absl::OkStatus());
}

}  // namespace
}  // namespace tutti
