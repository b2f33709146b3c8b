#include "bindings/cli/bench/places.h"

#include <vector>

#include "gtest/gtest.h"

namespace tutti::cli {
namespace {

TEST(BenchPlacesTest, CountsNodesAndTheRanksOfTheFullestOne) {
  EXPECT_EQ(PlacesOf({}, 3), (BenchPlaces{.nodes = 1, .ranks_per_node = 3}));
  EXPECT_EQ(PlacesOf(std::vector<int>{0, 0, 0}, 3), (BenchPlaces{.nodes = 1, .ranks_per_node = 3}));
  EXPECT_EQ(PlacesOf(std::vector<int>{0, 1, 0, 1, 0}, 5), (BenchPlaces{.nodes = 2, .ranks_per_node = 3}));
  EXPECT_EQ(PlacesOf(std::vector<int>{0, 1, 2}, 3), (BenchPlaces{.nodes = 3, .ranks_per_node = 1}));
}

TEST(BenchPlacesTest, SaysWhereRanksAre) {
  EXPECT_EQ(InWords(4, {}), "4 ranks");
  EXPECT_EQ(InWords(1, {.nodes = 1, .ranks_per_node = 1}), "1 rank on 1 node");
  EXPECT_EQ(InWords(4, {.nodes = 2, .ranks_per_node = 2}), "4 ranks on 2 nodes of 2 ranks");
  EXPECT_EQ(InWords(3, {.nodes = 3, .ranks_per_node = 1}), "3 ranks on 3 nodes of 1 rank");
  EXPECT_EQ(InWords(5, {.nodes = 2, .ranks_per_node = 3}), "5 ranks on 2 nodes of up to 3 ranks");
}

// The numbers of a file that --compare reads may be any.
TEST(BenchPlacesTest, LargeNumbersAreNotTakenForEvenOnes) {
  EXPECT_FALSE((BenchPlaces{.nodes = 1 << 16, .ranks_per_node = 1 << 16}).even(0));
  EXPECT_EQ(InWords(4, {.nodes = (1 << 30) + 1, .ranks_per_node = 4}), "4 ranks on 1073741825 nodes of up to 4 ranks");
}

TEST(BenchPlacesTest, RanksShareALinkWhereANodeHasSeveralOfThem) {
  EXPECT_FALSE((BenchPlaces{.nodes = 1, .ranks_per_node = 4}).share_links());
  EXPECT_FALSE((BenchPlaces{.nodes = 4, .ranks_per_node = 1}).share_links());
  EXPECT_TRUE((BenchPlaces{.nodes = 2, .ranks_per_node = 2}).share_links());
}

}  // namespace
}  // namespace tutti::cli
