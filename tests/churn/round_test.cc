// Equal seeds give equal rounds, so that a failed round can be run again.
#include "tests/churn/round.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace tutti::churn {
namespace {

TEST(RoundTest, EqualSeedsGiveEqualRoundsAndOthersOthers) {
  std::set<std::string> rounds;
  for (int number = 0; number < 50; ++number) {
    EXPECT_EQ(Describe(RoundOf({.seed = 7}, number)), Describe(RoundOf({.seed = 7}, number)));
    rounds.insert(Describe(RoundOf({.seed = 7}, number)));
    rounds.insert(Describe(RoundOf({.seed = 8}, number)));
  }
  EXPECT_GT(rounds.size(), 90U);
}

TEST(RoundTest, EveryFaultIsDrawnAndWhatIsFixedIsKept) {
  std::set<Fault> drawn;
  for (int number = 0; number < 200; ++number) {
    const Round round = RoundOf({.seed = 1, .path = Path::kTcp, .ranks = 3}, number);
    drawn.insert(round.fault);
    EXPECT_EQ(round.ranks, 3);
    EXPECT_EQ(RoundOf({.fault = "stop"}, number).fault, Fault::kStop);
    EXPECT_EQ(RoundOf({.path = Path::kInproc, .fault = "kill"}, number).fault, Fault::kNone);
  }
  EXPECT_EQ(drawn.size(), kAllFaults.size());
}

TEST(RoundTest, NamesAreReadAsTheyArePrinted) {
  for (const Path path : kAllPaths) EXPECT_EQ(*ParsePath(Name(path)), path);
  for (const Fault fault : kAllFaults) EXPECT_EQ(*ParseFault(Name(fault)), fault);
  EXPECT_FALSE(ParsePath("carrier pigeon").ok());
}

}  // namespace
}  // namespace tutti::churn
