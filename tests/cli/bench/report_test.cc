#include "bindings/cli/bench/report.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tutti::cli {
namespace {

// Two decimals, as in nccl-tests, are none of a slow link.
TEST(BenchReportTest, BandwidthsHaveThreeDigitsThatAreNotZero) {
  const std::pair<double, const char*> bandwidths[] = {
      {0, "0.00"},          {123.456, "123.46"},     {12.5, "12.50"},
      {1, "1.00"},          {0.9876, "0.988"},       {0.0125, "0.0125"},
      {0.00101, "0.00101"}, {0.0001234, "0.000123"}, {0.00001234, "1.2e-05"}};
  for (const auto& [bandwidth, text] : bandwidths) EXPECT_EQ(GigabytesPerSecond(bandwidth), text);
}

// Columns are as wide as their headings, whatever is in them.
TEST(BenchReportTest, ColumnsStayAligned) {
  const std::string heading = TableHeading({});
  BenchRow row;
  row.algbw_gb_s = 0.0001234;
  row.busbw_gb_s = 12345.67;
  const std::string line = TableLine(row, {});
  const std::size_t end_of_busbw = heading.find("busbw") + 5;
  EXPECT_EQ(line.substr(end_of_busbw - 17, 17), "0.000123 12345.67");
}

TEST(BenchReportTest, BuildsThatAreNoReleaseAreDoubted) {
  BuildSummary build = {.compiler = "g++ 12.2.0"};
  EXPECT_EQ(DoubtOn(build), "");
  build.asserts = true;
  EXPECT_EQ(DoubtOn(build), "");
  build.is_sanitized = true;
  EXPECT_THAT(DoubtOn(build),
              testing::EndsWith("this build of tutti is of g++ 12.2.0, optimized, with assertions, with "
                                "sanitizers"));
  build = {.compiler = "clang 14", .is_optimized = false};
  EXPECT_THAT(DoubtOn(build), testing::EndsWith("is of clang 14, not optimized"));
}

// A call of 1,000 us, where the median is 100, for which a rank stood in line that long.
std::string CauseOf(double waited_us) {
  BenchRow row;
  row.p50_us = 100;
  row.max_us = 1000;
  row.longest_call = 7;
  row.calls = 300;
  row.waits = {.rank = 2, .longest_us = waited_us, .slow_calls = 3, .slow_calls_in_line = 1};
  return LatencyLines(row, {});
}

TEST(BenchReportTest, LongCallsHaveACause) {
  EXPECT_THAT(CauseOf(450),
              testing::HasSubstr("#   in call 7 rank 2 stood in line for a processor longest, for 450.0 us: "
                                 "that made the call long; long for want of a processor: 1 of the 3 longest\n"));
  EXPECT_THAT(CauseOf(449),
              testing::HasSubstr("449.0 us: something else made the call long, such as a link, or a rank "));
  EXPECT_THAT(CauseOf(0), testing::HasSubstr("#   in call 7 no rank stood in line for a processor; long for want of"));
}

// Where the kernel does not tell, nothing is said.
TEST(BenchReportTest, UnknownWaitsAreNotTold) {
  EXPECT_THAT(LatencyLines({}, {}), testing::Not(testing::HasSubstr("for a processor")));
}

// Ranks are named with their hosts where there are several.
TEST(BenchReportTest, LongCallsNameTheHost) {
  BenchRow row;
  row.slowest_rank = 1;
  BenchAbout about;
  about.hosts = {"node1"};
  about.rank_hosts = {"node1", "node1"};
  EXPECT_THAT(LatencyLines(row, about), testing::HasSubstr("on rank 1 in call 0 of 0, through which rank 0 was"));
  about.hosts = {"node1", "node2"};
  about.rank_hosts = {"node1", "node2"};
  EXPECT_THAT(LatencyLines(row, about),
              testing::HasSubstr("on rank 1 (node2) in call 0 of 0, through which rank 0 (node1) was"));
}

TEST(BenchReportTest, SharedProcessorsAreNoticed) {
  BenchRow row;
  row.ranks = 2;
  row.calls = 100;
  row.bytes = 4;
  row.preempted = 100;
  EXPECT_THAT(TableFooting({row}, true), testing::Not(testing::HasSubstr("--bind")));
  row.preempted = 101;
  EXPECT_THAT(TableFooting({row}, false), testing::Not(testing::HasSubstr("--bind")));
  EXPECT_THAT(TableFooting({row}, true),
              testing::HasSubstr("# ranks lost their processor 101 times in 100 calls of 4 bytes: "));
}

}  // namespace
}  // namespace tutti::cli
