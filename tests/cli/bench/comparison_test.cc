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
  row.time_us = time_us;
  row.busbw_gb_s = 1 / time_us;
  return row;
}

TEST(BenchComparisonTest, ShowsTimesAndTheirRatios) {
  BenchRecord a = {.name = "ring", .about = {}, .rows = {Row(4, 2, "ring"), Row(8, 4, "ring"), Row(16, 5, "ring")}};
  a.about = {.hosts = {"node1"},
             .rank_hosts = {},
             .date = "today",
             .version = "1.2.3",
             .build = "g++ 12.2.0, not optimized",
             .command = "tutti bench",
             .ranks = 2,
             .places = {.nodes = 1, .ranks_per_node = 2},
             .transport = "ucx",
             .links = "",
             .processors = ""};
  BenchRecord b = {.name = "chosen", .about = {}, .rows = {Row(4, 1), Row(8, 8)}};
  for (BenchRow& row : b.rows) row.places = {.nodes = 2, .ranks_per_node = 1};
  const std::string text = Comparison(std::vector<BenchRecord>{a, b}).value();
  EXPECT_THAT(
      text, HasSubstr("# A: ring (2 ranks, ring): tutti bench\n#    today, 2 ranks on 1 node, host node1, tutti 1.2.3 "
                      "(g++ 12.2.0, not optimized)\n"));
  EXPECT_THAT(text, HasSubstr("# B: chosen (2 ranks on 2 nodes of 1 rank, chosen schedule)\n"));
  EXPECT_THAT(text, ContainsRegex("size +A \\(us\\) +B \\(us\\) +B/A +A busbw +B busbw\n"));
  EXPECT_THAT(text, ContainsRegex("\n +4 +2\\.00 +1\\.00 +0\\.50 +0\\.500 +1\\.00\n +8 +4\\.00 +8\\.00 +2\\.00 "));
  EXPECT_THAT(text, HasSubstr("# B takes 1.00 of the time of A: geometric mean over 2 sizes\n"));
  EXPECT_THAT(text, HasSubstr("# 1 size is not in all of them"));
}

TEST(BenchComparisonTest, SaysWhoseResultsWereWrongOrNotChecked) {
  std::vector<BenchRecord> records(4, {.name = "run", .about = {}, .rows = {Row(4, 2), Row(8, 2)}});
  records[1].about.command = "tutti bench";
  records[1].rows[0].wrong = 3;
  records[1].rows[1].wrong = 4;
  records[2].rows[1].wrong = 1;
  for (BenchRow& row : records[3].rows) row.wrong = -1;
  EXPECT_THAT(Comparison(records).value(), HasSubstr("# A: run\n"
                                                     "# B: run: tutti bench\n#    results were wrong (7 elements)\n"
                                                     "# C: run\n#    results were wrong (1 element)\n"
                                                     "# D: run\n#    results were not checked\n"));
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

// A chosen schedule is compared with the same one where the other run has measured several.
TEST(BenchComparisonTest, ComparesAChosenScheduleWithItsLike) {
  const std::vector<BenchRecord> records = {
      {.name = "all", .about = {}, .rows = {Row(4, 2, "direct"), Row(4, 9, "ring"), Row(8, 2, "ring")}},
      {.name = "chosen", .about = {}, .rows = {Row(4, 1), Row(8, 8)}}};
  const absl::StatusOr<std::string> text = Comparison(records);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_THAT(*text, ContainsRegex("# direct\n +4 +2\\.00 +1\\.00 +0\\.50 "));
  EXPECT_THAT(*text, HasSubstr("# B takes 0.50 of the time of A: geometric mean over 1 sizes\n# 3 sizes are not in"));
  EXPECT_THAT(
      std::string(
          Comparison({records.front(), {.name = "bytes", .about = {}, .rows = {Row(16, 1)}}}).status().message()),
      HasSubstr("all has direct of 4 bytes, ring of 4 to 8 bytes; bytes has direct of 16 bytes"));
}

TEST(BenchComparisonTest, RootsAreSettings) {
  std::vector<BenchRecord> records(3, {.name = "run", .about = {}, .rows = {Row(4, 2)}});
  records[0].rows[0].root = 0;
  records[1].rows[0].root = 1;
  EXPECT_THAT(DifferencesOf({records[0], records[1]}), ElementsAre("root 0", "root 1"));
  EXPECT_THAT(DifferencesOf({records[0], records[2]}), ElementsAre("", "")) << "the latter does not say";
}

// Times on different links, or of different builds, are no repeats of each other.
TEST(BenchComparisonTest, LinksAndVariantsAreSettings) {
  std::vector<BenchRecord> records = {{.name = "hosts", .about = {}, .rows = std::vector<BenchRow>(3, Row(4, 2))}};
  for (BenchRow& row : records[0].rows) {
    row.variant = "measured as tutti";
    row.link = "100mbit";
  }
  records[0].rows[1].link = "1gbit";
  records[0].rows[1].time_us = 8;
  records[0].rows[2].variant = "measured as before";
  const std::vector<Series> series = SeriesOf(records)[0];
  ASSERT_EQ(series.size(), 3U);
  EXPECT_EQ(series[0].label, "measured as tutti 100mbit");
  EXPECT_EQ(series[1].label, "measured as tutti 1gbit");
  EXPECT_EQ(series[1].points[0].time_us, 8);
  EXPECT_EQ(series[2].label, "measured as before 100mbit");
}

// A sum of a codec has no schedule.
TEST(BenchComparisonTest, ACodecIsNoSchedule) {
  std::vector<BenchRecord> records = {{.name = "plain", .about = {}, .rows = {Row(4, 2)}},
                                      {.name = "codec", .about = {}, .rows = {Row(4, 1)}}};
  records[1].rows[0].schedule = "";
  records[1].rows[0].schedule_chosen = false;
  records[1].rows[0].codec = "bf16";
  EXPECT_THAT(DifferencesOf(records), ElementsAre("no codec", "codec bf16"));
  records[0].rows.push_back(records[1].rows[0]);
  EXPECT_THAT(SeriesOf(records)[0][0].label, "no codec");
}

TEST(BenchComparisonTest, SmallBandwidthsHaveDigits) {
  const std::vector<BenchRecord> records = {{.name = "a", .about = {}, .rows = {Row(4, 800)}},
                                            {.name = "b", .about = {}, .rows = {Row(4, 80)}}};
  EXPECT_THAT(Comparison(records).value(), HasSubstr(" 0.10    0.00125     0.0125\n"));
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
  EXPECT_THAT(text, ContainsRegex("\n +4 +2\\.50 +5\\.00 +2\\.00 +0\\.400 +0\\.200\n"));
}

TEST(BenchComparisonTest, RefusesFilesWithNothingInCommon) {
  BenchRow other = Row(4, 1);
  other.collective = "broadcast";
  const std::vector<BenchRecord> records = {{.name = "a", .about = {}, .rows = {Row(8, 1)}},
                                            {.name = "b", .about = {}, .rows = {Row(4, 1), other}}};
  const absl::Status status = Comparison(records).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("nothing to compare, as no setting and size is in every file: a has all_reduce of 8 bytes; b "
                        "has all_reduce of 4 bytes, broadcast of 4 bytes; measure the same in every run"));
}

}  // namespace
}  // namespace tutti::cli
