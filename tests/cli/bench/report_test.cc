#include "bindings/cli/bench/report.h"

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

}  // namespace
}  // namespace tutti::cli
