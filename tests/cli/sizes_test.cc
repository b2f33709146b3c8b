#include "bindings/cli/sizes.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tutti::cli {
namespace {

TEST(SizesTest, ReadsBinaryUnits) {
  EXPECT_EQ(*ParseBytes("0"), 0);
  EXPECT_EQ(*ParseBytes("4"), 4);
  EXPECT_EQ(*ParseBytes("1K"), 1024);
  EXPECT_EQ(*ParseBytes("256M"), 268435456);
  EXPECT_EQ(*ParseBytes("1G"), 1073741824);
  for (const char* text : {"64k", "64Ki", "64KiB", "64kiB"}) EXPECT_EQ(*ParseBytes(text), 65536) << text;
}

TEST(SizesTest, RefusesWhatIsNoSize) {
  for (const char* text : {"", "K", "-1", "1.5M", "4 K", "1X", "64KB", "64iB", "iB", "i", "9223372036854775807K"}) {
    const absl::StatusOr<std::int64_t> size = ParseBytes(text);
    ASSERT_FALSE(size.ok()) << text;
    EXPECT_THAT(std::string(size.status().message()), testing::HasSubstr("4, 1K (1024), 256M or 1G"));
  }
}

TEST(SizesTest, WritesWhatItReads) {
  for (const char* text : {"0", "4", "1000", "1K", "1025", "256M", "3G"})
    EXPECT_EQ(FormatBytes(*ParseBytes(text)), text);
}

}  // namespace
}  // namespace tutti::cli
