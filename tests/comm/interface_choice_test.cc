#include "comm/interface_choice.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tutti {
namespace {

using testing::HasSubstr;

constexpr absl::string_view kRemedy = "set TUTTI_INTERFACE";

std::string WayOf(const std::vector<RankPlace>& places, Rank rank) {
  const absl::StatusOr<std::string> way = WayToOthers(places, rank, kRemedy);
  return way.ok() ? *way : std::string(way.status().message());
}

TEST(WayToOthersTest, OneNodeNeedsNone) {
  const std::vector<RankPlace> places = {{"a", "127.0.0.1", ""}, {"a", "10.0.0.1", ""}, {"a", "", ""}};
  for (const Rank rank : {0, 1, 2}) EXPECT_EQ(WayOf(places, rank), "");
}

TEST(WayToOthersTest, IsTheOwnAddressOrLeadsToAnotherNode) {
  // The store is on node a, which knows its own name as loopback; rank 3 has found nothing.
  const std::vector<RankPlace> places = {
      {"a", "127.0.0.1", ""}, {"a", "::1", ""}, {"b", "10.0.0.2", ""}, {"c", "", ""}, {"c", "10.0.0.3", ""}};
  EXPECT_EQ(WayOf(places, 0), "10.0.0.2");
  EXPECT_EQ(WayOf(places, 1), "10.0.0.2");
  EXPECT_EQ(WayOf(places, 2), "10.0.0.2");
  EXPECT_EQ(WayOf(places, 3), "10.0.0.2");
  EXPECT_EQ(WayOf(places, 4), "10.0.0.3");
}

TEST(WayToOthersTest, AnErrorIsTheSameOnEveryRank) {
  const std::vector<RankPlace> lost = {{"a", "127.0.0.1", ""}, {"a", "", ""}, {"b", "127.0.1.1", ""}};
  const std::vector<RankPlace> wrong = {{"a", "10.0.0.1", ""}, {"b", "", "GLOO_SOCKET_IFNAME=x is nothing"}};
  for (const Rank rank : {0, 1, 2}) {
    EXPECT_THAT(WayOf(lost, rank), HasSubstr("ranks 0 and 2 are on different nodes, and nothing says which network "
                                             "interface joins them (that of rank 0, 127.0.0.1, leads to no other "
                                             "node): set TUTTI_INTERFACE"));
  }
  for (const Rank rank : {0, 1}) EXPECT_EQ(WayOf(wrong, rank), "rank 1: GLOO_SOCKET_IFNAME=x is nothing");
}

}  // namespace
}  // namespace tutti
