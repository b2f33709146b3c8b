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
  EXPECT_EQ(*ParseRate("8000"), 1e3);
  EXPECT_EQ(*ParseRate("125MB"), 125e6);
  EXPECT_EQ(*ParseRate("1.25GB/s"), 1.25e9);
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
  for (const char* text : {"", "G", "0", "-1G", "1X", "1 G", "1e9", "inf", "nan", "B", "1.2.3G", "1Gbyte"}) {
    EXPECT_THAT(std::string(ParseRate(text).status().message()), HasSubstr("is no rate; write bits per second as 100M"))
        << text;
  }
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
