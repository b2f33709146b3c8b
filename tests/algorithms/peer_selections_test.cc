// With whom a rank mixes in each peer selection, compared with the paper or Bagua's documentation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "tutti/algorithm.h"
#include "tutti/peer_selection.h"

namespace tutti {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<PeerWeight> Mix(absl::string_view selection, int size, int round, Rank rank) {
  return (*FindPeerSelection(selection))->mix(size, round, rank);
}

// The rank with which `rank` forms a pair; `rank` itself when it sits out.
Rank PeerOf(absl::string_view selection, int size, int round, Rank rank) {
  const std::vector<PeerWeight> mix = Mix(selection, size, round, rank);
  for (const PeerWeight& part : mix) {
    if (part.rank != rank) return part.rank;
  }
  return rank;
}

TEST(PeerSelections, ShiftOneIsBaguasForEvenWorlds) {
  for (const int n : {2, 4, 6, 8, 16}) {
    const int h = n / 2;
    for (int c = 0; c < 2 * n; ++c) {
      const int round = RoundOfExchange(**FindPeerSelection("shift_one"), c, 0, n);
      for (Rank r = 0; r < n; ++r) {
        const Rank expected = r < h ? (c + r) % h + h : ((r - h - c) % h + h) % h;
        EXPECT_EQ(PeerOf("shift_one", n, round, r), expected) << "rank " << r << " of " << n << ", round " << c;
      }
    }
  }
}

TEST(PeerSelections, InAnOddWorldOneRankSitsOutInRotation) {
  for (const int n : {1, 3, 5, 7}) {
    const PeerSelection& shift_one = **FindPeerSelection("shift_one");
    std::vector<bool> sat_out(n, false);
    for (int round = 0; round < shift_one.rounds(n); ++round) {
      int alone = 0;
      for (Rank r = 0; r < n; ++r) {
        const Rank peer = PeerOf("shift_one", n, round, r);
        EXPECT_EQ(PeerOf("shift_one", n, round, peer), r);
        if (peer != r) continue;
        ++alone;
        EXPECT_FALSE(sat_out[r]) << "rank " << r << " of " << n << " sits out twice in one turn";
        sat_out[r] = true;
      }
      EXPECT_EQ(alone, 1) << n << " ranks, round " << round;
    }
  }
}

TEST(PeerSelections, RandomPairsMeetEveryOtherRankEquallyOften) {
  for (const int n : {2, 3, 4, 5, 8, 9}) {
    const PeerSelection& random_pair = **FindPeerSelection("random_pair");
    for (Rank r = 0; r < n; ++r) {
      std::vector<int> met(n, 0);
      for (int round = 0; round < random_pair.rounds(n); ++round) {
        const Rank peer = PeerOf("random_pair", n, round, r);
        EXPECT_EQ(PeerOf("random_pair", n, round, peer), r);
        ++met[peer];
      }
      for (Rank other = 0; other < n; ++other) {
        EXPECT_EQ(met[other], other != r || n % 2 == 1 ? 1 : 0) << "rank " << r << " and " << other << " of " << n;
      }
    }
  }
}

TEST(PeerSelections, LotsDependOnTheSeedAlone) {
  const PeerSelection& random_pair = **FindPeerSelection("random_pair");
  std::vector<int> first;
  std::vector<int> again;
  std::vector<int> other_seed;
  std::vector<int> drawn(7, 0);
  for (int exchange = 0; exchange < 700; ++exchange) {
    first.push_back(RoundOfExchange(random_pair, exchange, 1, 8));
    again.push_back(RoundOfExchange(random_pair, exchange, 1, 8));
    other_seed.push_back(RoundOfExchange(random_pair, exchange, 2, 8));
    ++drawn[first.back()];
  }
  EXPECT_EQ(first, again);
  EXPECT_NE(first, other_seed);
  EXPECT_THAT(drawn, ::testing::Each(::testing::AllOf(::testing::Ge(60), ::testing::Le(140))));
}

TEST(PeerSelections, GraphsOfTheLiterature) {
  EXPECT_THAT(Mix("ring", 5, 0, 0),
              ElementsAre(PeerWeight{0, 1.0 / 3}, PeerWeight{1, 1.0 / 3}, PeerWeight{4, 1.0 / 3}));
  EXPECT_THAT(Mix("exponential", 8, 0, 7),
              ElementsAre(PeerWeight{0, 0.25}, PeerWeight{1, 0.25}, PeerWeight{3, 0.25}, PeerWeight{7, 0.25}));
  EXPECT_THAT(Mix("one_peer_exponential", 8, 2, 6), ElementsAre(PeerWeight{2, 0.5}, PeerWeight{6, 0.5}));
  EXPECT_THAT(Mix("torus", 9, 0, 4), ElementsAre(PeerWeight{1, 0.2}, PeerWeight{3, 0.2}, PeerWeight{4, 0.2},
                                                 PeerWeight{5, 0.2}, PeerWeight{7, 0.2}));
  for (const PeerSelection* selection : AllPeerSelections()) {
    EXPECT_THAT(selection->mix(1, 0, 0), ElementsAre(PeerWeight{0, 1})) << selection->name;
  }
}

// Digits that the writer of a matrix has left out neither shrink nor grow weights.
TEST(PeerSelections, RowsOfAMatrixAreDividedByTheirSums) {
  const std::string setting = "matrix=0.6666666 0.3333333/0.3333333 0.6666666";
  const Strategy strategy = *ParseStrategy("decentralized:" + setting);
  EXPECT_THAT(strategy.ToString(), HasSubstr(setting));
  for (Rank rank = 0; rank < 2; ++rank) {
    const std::vector<double> row = MixingOf(strategy, 0, rank, 2);
    EXPECT_NEAR(std::accumulate(row.begin(), row.end(), 0.0), 1, 1e-15) << rank;
  }
}

// The matrix in which each of `size` ranks gives `share` to the ranks up to `distance` places before and after it.
Strategy AroundEachRank(int size, int distance, const std::string& share) {
  std::vector<std::string> rows;
  for (Rank rank = 0; rank < size; ++rank) {
    std::vector<std::string> row(size, "0");
    for (int away = -distance; away <= distance; ++away) row[(rank + away + size) % size] = share;
    rows.push_back(absl::StrJoin(row, " "));
  }
  return *ParseStrategy("decentralized:matrix=" + absl::StrJoin(rows, "/"));
}

// Equal shares are added up and then divided, which does not drift; so few digits of them are as good as many.
TEST(PeerSelections, SharesThatAreWrittenAlikeAreEqualBitForBit) {
  const Strategy ring = *ParseStrategy("decentralized:peer_selection_mode=ring");
  for (const char* third : {"0.3333333", "0.33333333", "0.333333333333333"}) {
    for (Rank rank = 0; rank < 6; ++rank) {
      EXPECT_EQ(MixingOf(AroundEachRank(6, 1, third), 0, rank, 6), MixingOf(ring, 0, rank, 6)) << third;
    }
  }
  const absl::StatusOr<Plan> all = BuildPlan(*ParseStrategy("decentralized"), DType::kF32, 100, 0, 9, {});
  const absl::StatusOr<Plan> ninths = BuildPlan(AroundEachRank(9, 4, "0.1111111"), DType::kF32, 100, 0, 9, {});
  ASSERT_TRUE(all.ok() && ninths.ok());
  EXPECT_EQ(WireBytes(*ninths), WireBytes(*all));
  const Strategy tenths =
      *ParseStrategy("decentralized:matrix=" +
                     absl::StrJoin(std::vector<std::string>(10, "0.1 0.1 0.1 0.1 0.1 0.1 0.1 0.1 0.1 0.1"), "/"));
  EXPECT_THAT(MixingOf(tenths, 0, 0, 10), IsEmpty()) << "no average of all";
}

TEST(PeerSelections, UnknownNamesAndBadMatricesSayWhatIsValid) {
  EXPECT_THAT(std::string(FindPeerSelection("star").status().message()), HasSubstr("shift_one"));
  const absl::Status unknown = ParseStrategy("decentralized:peer_selection_mode=star").status();
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("valid: all, exponential"));
  const std::pair<const char*, const char*> wrong[] = {
      {"0.5 0.5/0.5", "row 1 has 1 entries, must have 2, one per row"},
      {"0.5 0.6/0.5 0.4", "row 0 sums to 1.1"},
      {"0.5 0.5/0.4 0.6", "column 0 sums to 0.9"},
      {"1.5 -0.5/-0.5 1.5", "must be a number from 0 on"},
      {"1 0/0 1", "ranks 0 and 1 never hear of each other"},
      {"0.5 x/0.5 0.5", "'x' is not a number"},
      {"0.5 0.500005/0.5 0.5", "row 0 sums to 1.000005, must be 1 to within 1e-6"},
      // Each sum of what is written is within 1e-6. Column 0 is not, once the rows are divided by their sums.
      {"0.8 0.0999995 0.0999996/0.1000005 0.8 0.1/0.1000004 0.1 0.8",
       "column 0 sums to 1.00000153, must be 1 to within 1e-6, after each row is divided by its sum"},
  };
  for (const auto& [matrix, message] : wrong) {
    const absl::Status status = ParseStrategy(std::string("decentralized:matrix=") + matrix).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << matrix;
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
  }
  const Strategy two = *ParseStrategy("decentralized:matrix=0.5 0.5/0.5 0.5");
  EXPECT_TRUE(BuildPlan(two, DType::kF32, 10, 0, 2, {}).ok());
  EXPECT_THAT(std::string(BuildPlan(two, DType::kF32, 10, 0, 3, {}).status().message()),
              HasSubstr("has 2 rows; a world of 3 needs 3"));
  const Strategy both = *ParseStrategy("decentralized:matrix=0.5 0.5/0.5 0.5,peer_selection_mode=ring");
  EXPECT_THAT(std::string(BuildPlan(both, DType::kF32, 10, 0, 2, {}).status().message()),
              HasSubstr("leave out peer_selection_mode=ring"));
}

}  // namespace
}  // namespace tutti
