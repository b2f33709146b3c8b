#include "bindings/cli/command_line.h"

#include "gtest/gtest.h"

namespace tutti::cli {
namespace {

TEST(CommandLineTest, QuotesWhatAShellWouldRead) {
  EXPECT_EQ(CommandLine({"tutti", "--json", "a b.json", "it's", ""}), "tutti --json 'a b.json' 'it'\\''s' ''");
}

}  // namespace
}  // namespace tutti::cli
