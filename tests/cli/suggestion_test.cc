#include "bindings/cli/suggestion.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace tutti::cli {
namespace {

TEST(SuggestionTest, NamesWhatWasProbablyMeant) {
  EXPECT_EQ(Suggestion("rings", std::vector<std::string>{"ring", "direct"}), "; did you mean ring?");
  EXPECT_EQ(Suggestion("brodcast", std::vector<std::string>{"all_reduce", "broadcast"}), "; did you mean broadcast?");
}

TEST(SuggestionTest, ListsEverythingWhenNothingIsNear) {
  EXPECT_EQ(Suggestion("zzzzzz", std::vector<std::string>{"ring", "direct"}), "; valid: ring, direct");
}

}  // namespace
}  // namespace tutti::cli
