#include "bindings/cli/bench/picture.h"

#include <string>
#include <vector>

#include "bindings/cli/bench/svg_chart.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tutti::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

int Count(const std::string& text, const std::string& word) {
  int count = 0;
  for (std::size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) ++count;
  return count;
}

BenchRecord Record(const std::string& name, double factor) {
  BenchRecord record{.name = name, .about = {}, .rows = {}};
  for (std::int64_t bytes = 0; bytes <= 4096; bytes = bytes == 0 ? 4 : bytes * 4) {
    BenchRow& row = record.rows.emplace_back();
    row.collective = "all_reduce";
    row.library = "tutti";
    row.schedule = "ring";
    row.schedule_chosen = true;
    row.ranks = 2;
    row.bytes = bytes;
    row.time_us = factor * static_cast<double>(bytes + 10);
    row.busbw_gb_s = 1;
    row.predicted_us = factor * static_cast<double>(bytes + 5);
  }
  return record;
}

TEST(BenchPictureTest, DrawsTimeAndBandwidthPredictedBesideMeasured) {
  BenchRecord a = Record("a", 1), b = Record("b", 2);
  b.about.hosts = {"node<1>"};
  b.about.date = "2026-11-26";
  b.about.version = "1.2.3";
  b.about.command = "tutti bench all_reduce";
  b.about.links = "messages take 1 µs & more";
  for (BenchRow& row : b.rows) row.messages = true;
  const std::string svg = PictureOf(std::vector<BenchRecord>{a, b});
  EXPECT_THAT(svg, testing::StartsWith("<svg xmlns="));
  EXPECT_THAT(svg, testing::EndsWith("</svg>\n"));
  for (const char* text : {">all_reduce, 2 ranks<", ">time of a call, mean (µs)<", ">bus bandwidth (GB/s)<",
                           ">a (memory mapped where it can be)<", ">b (messages)<", ">dashed: predicted<", ">4K<",
                           ">b: 2026-11-26 on node&lt;1&gt;, tutti 1.2.3, tutti bench all_reduce<"}) {
    EXPECT_THAT(svg, HasSubstr(text));
  }
  EXPECT_THAT(svg, HasSubstr("\n  links: messages take 1 µs &amp; more\n"));
  // Of each run, a measured and a predicted curve in each of two charts; marks of six sizes, and one in the legend. The
  // size of nothing has no place on a logarithmic axis.
  EXPECT_EQ(Count(svg, "stroke-dasharray"), 4);
  EXPECT_EQ(Count(svg, "<circle"), 2 * (2 * 6 + 1));
}

TEST(BenchPictureTest, SaysWhoseResultsWereWrongOrNotChecked) {
  std::vector<BenchRecord> records = {Record("a", 1), Record("b", 1), Record("c", 1)};
  records[1].rows[0].wrong = 3;
  // A command that fills the line of its record leaves room for the verdict.
  records[1].about.command = std::string(500, 'x');
  for (BenchRow& row : records[2].rows) row.wrong = -1;
  const std::string svg = PictureOf(records);
  EXPECT_THAT(svg, HasSubstr(">b: results were wrong (3 elements)<"));
  EXPECT_THAT(svg, HasSubstr(">c: results were not checked<"));
  EXPECT_THAT(svg, Not(HasSubstr(">a: results")));
}

TEST(BenchPictureTest, SaysHowManyCurvesItLeavesOut) {
  std::vector<BenchRecord> records;
  for (int i = 0; i < kMaxSeries + 2; ++i) records.push_back(Record("run" + std::to_string(i), 1));
  EXPECT_THAT(PictureOf(records), HasSubstr(">2 more curves are left out<"));
}

// Nothing that can be drawn: no size but that of nothing.
TEST(BenchPictureTest, DrawsEmptyCharts) {
  BenchRecord nothing = Record("a", 1);
  nothing.rows.resize(1);
  const std::string svg = PictureOf(std::vector<BenchRecord>{nothing});
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, Not(HasSubstr("inf")));
}

TEST(SvgChartTest, LabelsAxesInSmallAndLargeRanges) {
  const auto draw = [](double low, double high) {
    return SvgOf(
        "", "", {},
        std::vector<Chart>{
            {.x_label = "", .y_label = "", .curves = {{.label = "curve", .points = {{4, low}, {1024, high}}}}}});
  };
  EXPECT_THAT(draw(1, 4), testing::AllOf(HasSubstr(">1<"), HasSubstr(">2<"), HasSubstr(">1K<")));
  EXPECT_THAT(draw(1e-3, 1e5), testing::AllOf(HasSubstr(">0.01<"), HasSubstr(">10000<"), Not(HasSubstr(">2<"))));
}

}  // namespace
}  // namespace tutti::cli
