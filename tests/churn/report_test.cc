// Tests of Durations and LateNews, which judge how late news may be.
#include "tests/churn/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tutti::churn {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr NewsBounds kBounds = {.of_kill = absl::Seconds(1), .of_stop = absl::Milliseconds(100)};

TEST(DurationsTest, APercentileIsOneOfThem) {
  Durations durations;
  durations.Add(absl::Seconds(2));
  EXPECT_EQ(durations.Percentile(1), absl::Seconds(2));
  durations.Add(absl::Seconds(1));
  EXPECT_EQ(durations.Percentile(50), absl::Seconds(1));
  EXPECT_EQ(durations.Percentile(99), absl::Seconds(2));
  for (int i = 3; i <= 200; ++i) durations.Add(absl::Seconds(i));
  EXPECT_EQ(durations.Percentile(50), absl::Seconds(100));
  EXPECT_EQ(durations.Percentile(99), absl::Seconds(198));
  EXPECT_EQ(durations.Percentile(100), absl::Seconds(200));
}

TEST(LateNewsTest, NothingIsLateWhereNothingHappened) { EXPECT_THAT(Report().LateNews(kBounds), IsEmpty()); }

TEST(LateNewsTest, OneInAHundredMayBeLate) {
  Report report;
  for (int i = 0; i < 99; ++i) report.after_kill.Add(absl::Milliseconds(900));
  report.after_kill.Add(absl::Seconds(20));
  EXPECT_THAT(report.LateNews(kBounds), IsEmpty());
  report.after_kill.Add(absl::Seconds(20));
  const std::vector<Finding> late = report.LateNews(kBounds);
  ASSERT_EQ(late.size(), 1u);
  EXPECT_EQ(late[0].kind, Kind::kLateNews);
  EXPECT_THAT(late[0].text, HasSubstr("from a kill to the news at a survivor is 20s, and may be 1s"));
}

TEST(LateNewsTest, TheNewsOfAStopHasItsOwnBoundFromTheDeadline) {
  Report report;
  report.after_kill.Add(absl::Milliseconds(200));
  report.after_stop.Add(-absl::Milliseconds(3));
  report.after_stop.Add(absl::Milliseconds(200));
  const std::vector<Finding> late = report.LateNews(kBounds);
  ASSERT_EQ(late.size(), 1u);
  EXPECT_THAT(late[0].text, HasSubstr("the news of a stop is 200ms, and may be 100ms"));
}

}  // namespace
}  // namespace tutti::churn
