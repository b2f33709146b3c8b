#include "bindings/cli/svg_shapes.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tutti::cli {
namespace {

TEST(SvgShapesTest, FilesEndInSvg) {
  EXPECT_EQ(ParseSvgFile("a/b.svg").value(), "a/b.svg");
  EXPECT_THAT(std::string(ParseSvgFile("b.png").status().message()), testing::HasSubstr("the name must end in .svg"));
}

TEST(SvgShapesTest, ShortensWholeCharacters) {
  EXPECT_EQ(Shortened("all_reduce", 10), "all_reduce");
  EXPECT_EQ(Shortened("all_reduce", 9), "all_re...");
  EXPECT_EQ(Shortened("µµµµ", 6), "µ...");
}

}  // namespace
}  // namespace tutti::cli
