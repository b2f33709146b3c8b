#include "engine/hang.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

namespace tutti {
namespace {

constexpr std::optional<Rank> kSilent = std::nullopt;

// The rank that FindStalledRank names. `waits_for`: by rank, for whom the rank waits, as far as `self` knows.
std::optional<Rank> Culprit(Rank self, Rank direct, const std::vector<std::optional<Rank>>& waits_for) {
  const int size = static_cast<int>(waits_for.size());
  return FindStalledRank(size, self, direct, [&](Rank rank) { return waits_for[rank]; });
}

TEST(FindStalledRank, EndsWhereNobodyIsAwaited) {
  EXPECT_EQ(Culprit(0, 1, {1, kSilent}), 1);
  EXPECT_EQ(Culprit(0, 1, {1, -1}), 1);
  EXPECT_EQ(Culprit(0, 3, {3, kSilent, 1, 2}), 1);
  EXPECT_EQ(Culprit(2, 0, {1, 3, 0, kSilent}), 3);
}

TEST(FindStalledRank, NamesNobodyInACircle) {
  EXPECT_EQ(Culprit(0, 1, {1, 0}), std::nullopt);
  EXPECT_EQ(Culprit(0, 1, {1, 2, 3, 1}), std::nullopt);
  EXPECT_EQ(Culprit(0, 1, {1, 1}), std::nullopt);
  EXPECT_EQ(Culprit(0, 0, {0, kSilent}), std::nullopt);
}

TEST(FindStalledRank, TrustsNoRankOutsideTheWorld) {
  for (const Rank wild : {2, 1'000'000, -2}) EXPECT_EQ(Culprit(0, 1, {1, wild}), 1) << wild;
}

TEST(WaitsFor, BelievesAHeartbeatOnly) {
  constexpr std::int64_t kNow = 10'000'000'000;
  Presence presence;
  EXPECT_EQ(WaitsFor(presence, kNow), std::nullopt);
  presence.waits_for = 4;
  EXPECT_EQ(WaitsFor(presence, kNow), std::nullopt);
  presence.heartbeat_ns = kNow - 100'000'000;
  EXPECT_EQ(WaitsFor(presence, kNow), 4);
  EXPECT_EQ(WaitsFor(presence, kNow + 1'000'000'000), std::nullopt);
}

}  // namespace
}  // namespace tutti
