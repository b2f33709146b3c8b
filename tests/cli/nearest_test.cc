#include "bindings/cli/nearest.h"

#include <vector>

#include "gtest/gtest.h"

namespace tutti::cli {
namespace {

TEST(NearestTest, FindsWhatWasMeant) {
  const std::vector<std::string> names = {"all_reduce", "all_gather", "broadcast"};
  EXPECT_EQ(Nearest("allreduce", names), "all_reduce");
  EXPECT_EQ(Nearest("brodcast", names), "broadcast");
  EXPECT_EQ(Nearest("zzzzzz", names), "");
}

TEST(NearestTest, ListsEverythingWhenNothingIsNear) {
  EXPECT_EQ(Suggestion("zzzzzz", std::vector<std::string>{"ring", "direct"}), "; there are ring, direct");
  EXPECT_EQ(Suggestion("rings", std::vector<std::string>{"ring", "direct"}), "; did you mean ring?");
}

}  // namespace
}  // namespace tutti::cli
