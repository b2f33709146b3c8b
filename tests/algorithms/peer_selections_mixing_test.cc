// The mixing matrices of every peer selection, in every world, are doubly stochastic and connected.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "tests/algorithms/spectral_gap.h"
#include "tutti/peer_selection.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

constexpr int kSizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 32, 64};

class Mixing : public ::testing::TestWithParam<const PeerSelection*> {};

TEST_P(Mixing, EveryRoundIsDoublyStochastic) {
  for (const int size : kSizes) {
    for (int round = 0; round < GetParam()->rounds(size); ++round) {
      const Matrix matrix = MixingMatrix(*GetParam(), size, round);
      for (int i = 0; i < size; ++i) {
        double row = 0;
        double column = 0;
        for (int j = 0; j < size; ++j) {
          ASSERT_GE(matrix[i][j], 0);
          row += matrix[i][j];
          column += matrix[j][i];
        }
        ASSERT_NEAR(row, 1, 1e-12) << "row " << i << " of " << size << ", round " << round;
        ASSERT_NEAR(column, 1, 1e-12) << "column " << i << " of " << size << ", round " << round;
      }
    }
  }
}

TEST_P(Mixing, ARankNamesEachPeerOnceInOrderAndItself) {
  for (const int size : kSizes) {
    for (int round = 0; round < GetParam()->rounds(size); ++round) {
      for (Rank rank = 0; rank < size; ++rank) {
        bool itself = false;
        Rank last = -1;
        for (const PeerWeight& part : GetParam()->mix(size, round, rank)) {
          ASSERT_GT(part.rank, last);
          ASSERT_LT(part.rank, size);
          ASSERT_GT(part.weight, 0);
          last = part.rank;
          itself |= part.rank == rank;
        }
        ASSERT_TRUE(itself) << "rank " << rank << " of " << size << ", round " << round;
      }
    }
  }
}

TEST_P(Mixing, ConnectsAllRanksWithinATurn) {
  for (const int size : kSizes) {
    const int rounds = GetParam()->rounds(size);
    Matrix together(size, Vector(size, 0));
    for (int round = 0; round < rounds; ++round) {
      const Matrix matrix = MixingMatrix(*GetParam(), size, round);
      for (int i = 0; i < size; ++i) {
        for (int j = 0; j < size; ++j) together[i][j] += matrix[i][j] / rounds;
      }
    }
    // The ranks that weights of rank 0 have reached, after as many hops as there are ranks.
    std::vector<bool> reached(size, false);
    reached[0] = true;
    for (int hop = 0; hop < size; ++hop) {
      for (int i = 0; i < size; ++i) {
        for (int j = 0; j < size; ++j) {
          if (together[i][j] > 0 && reached[j]) reached[i] = true;
        }
      }
    }
    for (int i = 0; i < size; ++i) EXPECT_TRUE(reached[i]) << "rank " << i << " of " << size;
    EXPECT_TRUE(CheckMixingMatrix(together).ok()) << CheckMixingMatrix(together);
  }
}

TEST_P(Mixing, IsSymmetricWhereItIsMutual) {
  const std::string name(GetParam()->name);
  if (name == "exponential" || name == "one_peer_exponential") return;  // weights travel one way between two ranks
  for (const int size : kSizes) {
    for (int round = 0; round < GetParam()->rounds(size); ++round) {
      const Matrix matrix = MixingMatrix(*GetParam(), size, round);
      EXPECT_EQ(matrix, Transposed(matrix)) << size << " ranks, round " << round;
    }
  }
}

std::string NameOf(const ::testing::TestParamInfo<const PeerSelection*>& selection) {
  return std::string(selection.param->name);
}

INSTANTIATE_TEST_SUITE_P(All, Mixing, ::testing::ValuesIn(AllPeerSelections().begin(), AllPeerSelections().end()),
                         NameOf);

TEST(PairsOfRanks, MixHalfAndHalf) {
  for (const char* name : {"shift_one", "random_pair"}) {
    const PeerSelection& selection = **FindPeerSelection(name);
    for (const int size : kSizes) {
      for (int round = 0; round < selection.rounds(size); ++round) {
        int alone = 0;
        for (Rank rank = 0; rank < size; ++rank) {
          const std::vector<PeerWeight> mix = selection.mix(size, round, rank);
          alone += mix.size() == 1 ? 1 : 0;
          if (mix.size() == 1) continue;
          ASSERT_EQ(mix.size(), 2U);
          EXPECT_EQ(mix[0].weight, 0.5);
          EXPECT_EQ(mix[1].weight, 0.5);
        }
        EXPECT_EQ(alone, size % 2) << name << ", " << size << " ranks, round " << round;
      }
    }
  }
}

struct Mistake {
  Matrix matrix;
  const char* message;
};

TEST(MixingMatrices, ThatAreNoneAreRefusedWithTheReason) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Mistake mistakes[] = {
      {{{0.5, 0.5}}, "row 0 has 2 entries, must have 1, one per row"},
      {{{1, 0}, {0}}, "row 1 has 1 entries, must have 2, one per row"},
      {{{1.5, -0.5}, {-0.5, 1.5}}, "entry -0.5 of row 0, column 1 must be a number from 0 on"},
      {{{nan, 1}, {1, 0}}, "row 0, column 0 must be a number from 0 on"},
      {{{0.5, 0.4}, {0.5, 0.6}}, "row 0 sums to 0.9, must be 1"},
      {{{0.5, 0.5}, {0.4, 0.6}}, "column 0 sums to 0.9, must be 1"},
      {{{0, 1}, {1, 0}}, "hears of itself only every 2 exchanges"},
      {{{0, 1, 0}, {0, 0, 1}, {1, 0, 0}}, "hears of itself only every 3 exchanges"},
      {{{1, 0}, {0, 1}}, "ranks 0 and 1 never hear of each other"},
      {{{0.5, 0.5, 0, 0}, {0.5, 0.5, 0, 0}, {0, 0, 0.5, 0.5}, {0, 0, 0.5, 0.5}},
       "ranks 0 and 2 never hear of each other"},
  };
  for (const Mistake& mistake : mistakes) {
    const absl::Status status = CheckMixingMatrix(mistake.matrix);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << mistake.message;
    EXPECT_THAT(std::string(status.message()), HasSubstr(mistake.message));
  }
  EXPECT_TRUE(CheckMixingMatrix(Matrix{{1}}).ok());
  // No rank keeps a share of its own weights, but its weights come back to it after two exchanges and after three.
  EXPECT_TRUE(CheckMixingMatrix(Matrix{{0, 0.5, 0.5}, {0.5, 0, 0.5}, {0.5, 0.5, 0}}).ok());
  // Weights travel around this circle in one direction only, which connects all ranks, too.
  EXPECT_TRUE(CheckMixingMatrix(Matrix{{0.5, 0.5, 0}, {0, 0.5, 0.5}, {0.5, 0, 0.5}}).ok());
}

}  // namespace
}  // namespace tutti
