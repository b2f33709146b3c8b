#include "bindings/cli/advise/quantities.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tutti::cli {
namespace {

using ::testing::HasSubstr;

TEST(QuantitiesTest, RatesAreBitsUnlessTheySayBytes) {
  EXPECT_EQ(*ParseRate("1G"), 125e6);
  EXPECT_EQ(*ParseRate("1Gbit"), 125e6);
  EXPECT_EQ(*ParseRate("1Gbit/s"), 125e6);
  EXPECT_EQ(*ParseRate("2.5G"), 312.5e6);
  EXPECT_EQ(*ParseRate("100M"), 12.5e6);
  EXPECT_EQ(*ParseRate("800k"), 1e5);
  EXPECT_EQ(*ParseRate("125MB"), 125e6);
  EXPECT_EQ(*ParseRate("1.25GB/s"), 1.25e9);
  for (const char* text :
       {"100m", "100Mb", "100Mb/s", "100mb/s", "100Mbps", "100mbit", "100Mbit/s", "100MBit/s", "100 Mbit/s", " 100M ",
        "100MBIT", "100M/s", "0.1G", "100000kbit", "100000000bit/s", "100000000b/s"}) {
    ASSERT_TRUE(ParseRate(text).ok()) << ParseRate(text).status();
    EXPECT_EQ(*ParseRate(text), 12.5e6) << text;
  }
  for (const char* text : {"100MB", "100MB/s", "100MBps", "100 MB/s", "100mB/s", "100000000B/s"}) {
    ASSERT_TRUE(ParseRate(text).ok()) << ParseRate(text).status();
    EXPECT_EQ(*ParseRate(text), 100e6) << text;
  }
}

TEST(QuantitiesTest, CountsAreDecimal) {
  EXPECT_EQ(*ParseCount("350000"), 350'000);
  EXPECT_EQ(*ParseCount("350K"), 350'000);
  EXPECT_EQ(*ParseCount("20M"), 20'000'000);
  EXPECT_EQ(*ParseCount("1.5B"), 1'500'000'000);
  EXPECT_EQ(*ParseCount("1.5G"), 1'500'000'000);
}

TEST(QuantitiesTest, DelaysHaveUnits) {
  EXPECT_EQ(*ParseDelay("50us"), absl::Microseconds(50));
  EXPECT_EQ(*ParseDelay("2.5ms"), absl::Microseconds(2500));
  EXPECT_EQ(*ParseDelay("0"), absl::ZeroDuration());
}

TEST(QuantitiesTest, WhatIsNoQuantityIsRefusedWithAnExample) {
  for (const char* text : {"",       "G",     "0G",    "-1G",   "1X", "1G G", "1e9", "inf",  "nan", "B",  "1.2.3G",
                           "1Gbyte", "100/s", "100ps", "1.2.3", "0",  ".",    " ",   "1GiB", "1Gs", "1KM"}) {
    EXPECT_THAT(std::string(ParseRate(text).status().message()), HasSubstr("is no rate; write bits per second as 100M"))
        << text;
  }
  EXPECT_THAT(std::string(ParseRate("100").status().message()),
              HasSubstr("'100' has no unit: 100M would be megabits per second; write bits per second as 100M"));
  EXPECT_THAT(std::string(ParseRate(" 100 ").status().message()), HasSubstr("'100' has no unit: 100M would be "));
  EXPECT_THAT(std::string(ParseRate("1000000000").status().message()),
              HasSubstr("'1000000000' has no unit; write bits per second as 100M"));
  for (const char* text : {"", "0", "0.1", "M", "20MB", "-3", "1e6", "9999T"}) {
    EXPECT_THAT(std::string(ParseCount(text).status().message()), HasSubstr("write it as 350000, 350K, 20M or 1.5B"))
        << text;
  }
  for (const char* text : {"", "5", "-1ms", "inf", "2h"}) {
    EXPECT_THAT(std::string(ParseDelay(text).status().message()), HasSubstr("write it as 50us or 2ms")) << text;
  }
}

TEST(QuantitiesTest, RatesAreShownInBits) {
  EXPECT_EQ(FormatRate(125e6), "1 Gbit/s");
  EXPECT_EQ(FormatRate(312.5e6), "2.5 Gbit/s");
  EXPECT_EQ(FormatRate(12.5e6), "100 Mbit/s");
}

}  // namespace
}  // namespace tutti::cli
