#include "bindings/cli/bench/comparison.h"

#include <string>
#include <vector>

#include "bindings/cli/bench/series.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tutti::cli {
namespace {

using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

BenchRow Row(std::int64_t bytes, double time_us, const std::string& schedule = "") {
  BenchRow row;
  row.collective = "all_reduce";
  row.library = "tutti";
  row.schedule = schedule.empty() ? "direct" : schedule;
  row.schedule_chosen = schedule.empty();
  row.ranks = 2;
  row.bytes = bytes;
  row.op = "sum";
  row.p50_us = time_us;
  row.busbw_gb_s = 1 / time_us;
  return row;
}

TEST(BenchComparisonTest, ShowsTimesAndTheirRatios) {
  BenchRecord a = {.name = "ring", .about = {}, .rows = {Row(4, 2, "ring"), Row(8, 4, "ring"), Row(16, 5, "ring")}};
  a.about = {.hosts = {"node1"},
             .date = "today",
             .version = "1.2.3",
             .command = "tutti bench",
             .ranks = 2,
             .transport = "ucx",
             .links = ""};
  const BenchRecord b = {.name = "chosen", .about = {}, .rows = {Row(4, 1), Row(8, 8)}};
  const std::string text = Comparison(std::vector<BenchRecord>{a, b}).value();
  EXPECT_THAT(text, HasSubstr("# A: ring (ring): tutti bench\n#    today, 2 ranks on node1, tutti 1.2.3\n"));
  EXPECT_THAT(text, HasSubstr("# B: chosen (chosen schedule)\n"));
  EXPECT_THAT(text, ContainsRegex("size +A \\(us\\) +B \\(us\\) +B/A +A busbw +B busbw\n"));
  EXPECT_THAT(text, ContainsRegex("\n +4 +2\\.00 +1\\.00 +0\\.50 +0\\.50 +1\\.00\n +8 +4\\.00 +8\\.00 +2\\.00 "));
  EXPECT_THAT(text, HasSubstr("# B takes 1.00 of the time of A: geometric mean over 2 sizes\n"));
  EXPECT_THAT(text, HasSubstr("# 1 sizes are not in all of them"));
}

// What varies within a file names series, which are compared with their like.
TEST(BenchComparisonTest, ComparesLikeWithLike) {
  std::vector<BenchRecord> records(2);
  for (std::size_t i = 0; i < 2; ++i) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      BenchRow row = Row(4, dtype == DType::kF32 ? 10 : 20);
      row.dtype = dtype;
      row.messages = i == 1;
      records[i].rows.push_back(row);
    }
  }
  records[1].rows.erase(records[1].rows.begin());  // bf16 alone is in both
  EXPECT_THAT(DifferencesOf(records), ElementsAre("memory mapped where it can be", "messages"));
  const std::string text = Comparison(records).value();
  EXPECT_THAT(text, HasSubstr("# bf16\n"));
  EXPECT_THAT(text, Not(HasSubstr("# f32\n")));
  EXPECT_THAT(text, ContainsRegex(" +4 +20\\.0 +20\\.0 +1\\.00"));
}

TEST(BenchComparisonTest, RepeatsCountByTheirMedian) {
  const std::vector<BenchRecord> records = {{.name = "a", .about = {}, .rows = {Row(4, 9), Row(4, 2), Row(4, 3)}}};
  const std::vector<std::vector<Series>> series = SeriesOf(records);
  ASSERT_EQ(series[0].size(), 1U);
  EXPECT_EQ(series[0][0].label, "");
  ASSERT_EQ(series[0][0].points.size(), 1U);
  EXPECT_EQ(series[0][0].points[0].time_us, 3);
}

TEST(BenchComparisonTest, TwoRepeatsCountByTheirMean) {
  const std::vector<BenchRecord> records = {{.name = "a", .about = {}, .rows = {Row(4, 4), Row(4, 1)}},
                                            {.name = "b", .about = {}, .rows = {Row(4, 5)}}};
  const std::string text = Comparison(records).value();
  EXPECT_THAT(text, ContainsRegex("\n +4 +2\\.50 +5\\.00 +2\\.00 +0\\.40 +0\\.20\n"));
}

TEST(BenchComparisonTest, RefusesFilesWithNothingInCommon) {
  BenchRow other = Row(4, 1);
  other.collective = "broadcast";
  const std::vector<BenchRecord> records = {{.name = "a", .about = {}, .rows = {Row(8, 1)}},
                                            {.name = "b", .about = {}, .rows = {Row(4, 1), other}}};
  const absl::Status status = Comparison(records).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("nothing to compare: no size of all_reduce"));
}

}  // namespace
}  // namespace tutti::cli
