// The weights of different ranks come together as fast as the spectral gap of the mixing matrices says.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numbers>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/algorithms/spectral_gap.h"
#include "tests/harness/sweeps.h"
#include "tests/harness/training.h"
#include "tests/schedules/sequential_executor.h"
#include "tutti/algorithm.h"

namespace tutti {
namespace {

std::vector<int> Sizes() { return SweptWorlds({2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 32}); }

std::string StrategyOf(const PeerSelection& selection) {
  return absl::StrCat("decentralized:peer_selection_mode=", selection.name);
}

// One weight per rank, after the plans of one round.
Vector AfterRound(const PeerSelection& selection, int round, const Vector& weights, bool mapped) {
  const int size = static_cast<int>(weights.size());
  const Strategy strategy = *ParseStrategy(StrategyOf(selection));
  std::vector<Plan> plans;
  std::vector<Bytes> in;
  std::vector<Bytes> out;
  for (Rank rank = 0; rank < size; ++rank) {
    absl::StatusOr<Plan> plan = BuildPlan(strategy, DType::kF64, 1, rank, size, {.peers_mapped = mapped}, round);
    EXPECT_TRUE(plan.ok()) << plan.status();
    plans.push_back(*std::move(plan));
    in.emplace_back(sizeof(double));
    std::memcpy(in.back().data(), &weights[rank], sizeof(double));
    out.emplace_back(sizeof(double), kGarbage);
  }
  SequentialExecutor executor(plans, in, out, SequentialExecutor::Order::kFirstToLast);
  EXPECT_EQ(executor.Run(), "");
  Vector mixed(size);
  for (Rank rank = 0; rank < size; ++rank) std::memcpy(&mixed[rank], executor.out(rank).data(), sizeof(double));
  return mixed;
}

// The share of the disagreement of `weights` that is left after one turn of rounds or, where the peer selection draws
// a round by lot, after one drawn round, as the root mean square over all rounds.
double Remaining(const PeerSelection& selection, const Vector& weights, bool mapped) {
  const int rounds = selection.rounds(static_cast<int>(weights.size()));
  Vector in_turn = weights;
  double squares = 0;
  for (int round = 0; round < rounds; ++round) {
    const Vector mixed = AfterRound(selection, round, selection.random ? weights : in_turn, mapped);
    squares += std::pow(Disagreement(mixed), 2) / rounds;
    in_turn = mixed;
  }
  return (selection.random ? std::sqrt(squares) : Disagreement(in_turn)) / Disagreement(weights);
}

class Consensus : public ::testing::TestWithParam<const PeerSelection*> {};

TEST_P(Consensus, TheSlowestDisagreementContractsAtTheSpectralGap) {
  for (const int size : Sizes()) {
    const Contraction expected = SlowestContraction(TurnsOf(*GetParam(), size));
    if (expected.rate < 1e-9) continue;
    for (const bool mapped : {false, true}) {
      EXPECT_NEAR(Remaining(*GetParam(), expected.slowest, mapped), expected.rate, 1e-6)
          << size << " ranks" << (mapped ? ", mapped" : "");
    }
  }
}

TEST_P(Consensus, NoDisagreementContractsSlower) {
  for (const int size : Sizes()) {
    const double slowest = SlowestContraction(TurnsOf(*GetParam(), size)).rate;
    for (const std::uint32_t seed : {1, 2, 3}) {
      const Floats random = RandomNumbers(size, seed);
      const double remaining = Remaining(*GetParam(), Vector(random.begin(), random.end()), /*mapped=*/true);
      EXPECT_LE(remaining, slowest + 1e-7) << size << " ranks";
    }
  }
}

TEST_P(Consensus, TheAverageStays) {
  for (const int size : Sizes()) {
    const Floats random = RandomNumbers(size, 7);
    const Vector weights(random.begin(), random.end());
    double sum = 0;
    for (const double weight : weights) sum += weight;
    for (int round = 0; round < GetParam()->rounds(size); ++round) {
      double mixed = 0;
      for (const double weight : AfterRound(*GetParam(), round, weights, /*mapped=*/true)) mixed += weight;
      EXPECT_NEAR(mixed, sum, 1e-12);
    }
  }
}

// Trains with a real synchronizer and gradients of zero.
TEST_P(Consensus, IsReachedAtThatRateInTraining) {
  if (GetParam()->random) return;  // one sequence of drawn rounds differs from their mean
  for (const int size : SweptWorlds({2, 4, 5, 8})) {
    const Contraction expected = SlowestContraction(TurnsOf(*GetParam(), size));
    Training training = RandomTraining(StrategyOf(*GetParam()), size, GetParam()->rounds(size));
    const Floats shape = training.initial;
    Ranks after(size);
    RunReplicas(training, [&](Communicator& world, Replica& replica) {
      const auto slow = static_cast<float>(expected.slowest[world.rank()]);
      for (std::size_t i = 0; i < shape.size(); ++i) replica.weights()[i] = slow * shape[i];
      for (std::size_t step = 0; step < training.gradients.size(); ++step) {
        ASSERT_TRUE(replica.Step(Floats(shape.size(), 0), training.lr).ok());
      }
      after[world.rank()] = replica.weights();
    });
    double remaining = 0;
    double total = 0;
    for (std::size_t i = 0; i < shape.size(); ++i) {
      Vector weights;
      for (const Floats& rank : after) weights.push_back(rank[i]);
      remaining += std::pow(Disagreement(weights), 2);
      total += std::pow(shape[i] * Disagreement(expected.slowest), 2);
    }
    EXPECT_NEAR(std::sqrt(remaining / total), expected.rate, 0.05 * expected.rate + 1e-6) << size << " ranks";
  }
}

std::string NameOf(const ::testing::TestParamInfo<const PeerSelection*>& selection) {
  return std::string(selection.param->name);
}

INSTANTIATE_TEST_SUITE_P(All, Consensus, ::testing::ValuesIn(AllPeerSelections().begin(), AllPeerSelections().end()),
                         NameOf);

// Compares rates with those that the literature gives, to guard the power iteration.
TEST(SpectralGap, IsThatOfTheLiterature) {
  const auto rate = [](const char* selection, int size) {
    return SlowestContraction(TurnsOf(**FindPeerSelection(selection), size)).rate;
  };
  for (const int size : {4, 5, 8, 16, 17}) {
    EXPECT_NEAR(rate("ring", size), 1.0 / 3 + 2.0 / 3 * std::cos(2 * std::numbers::pi / size), 1e-6) << size;
    // In an even world of n ranks the rate is (n-2) / 2(n-1), in mean square. (Boyd et al., "Randomized gossip
    // algorithms", 2006)
    if (size % 2 == 0) {
      EXPECT_NEAR(std::pow(rate("random_pair", size), 2), (size - 2) / (2.0 * (size - 1)), 1e-6);
    }
    EXPECT_NEAR(rate("all", size), 0, 1e-9);
  }
  // All ranks agree after one turn of rounds. (Ying et al., 2021)
  for (const int size : {2, 4, 8, 16, 32}) EXPECT_NEAR(rate("one_peer_exponential", size), 0, 1e-9);
}

// With 8 bits per element the rate is that of exact messages, because what a message loses shrinks with the
// disagreement that the message tells of.
TEST(LowPrecisionConsensus, IsReachedAtTheRateOfTheRing) {
  constexpr int kExchanges = 5;
  for (const int size : {3, 4, 5, 8}) {
    const Contraction ring = SlowestContraction(TurnsOf(**FindPeerSelection("ring"), size));
    Training training = RandomTraining("low_precision_decentralized", size, kExchanges + 1);
    const Floats shape = training.initial;
    training.initial = Floats(shape.size(), 0);
    training.lr = 1;
    for (Ranks& step : training.gradients) step = Ranks(size, training.initial);
    // Ranks start with equal weights, as the algorithm demands, and disagree after the first step.
    for (int rank = 0; rank < size; ++rank) {
      for (std::size_t i = 0; i < shape.size(); ++i) {
        training.gradients[0][rank][i] = -shape[i] * static_cast<float>(ring.slowest[rank]);
      }
    }
    const History history = Train(training);
    const auto disagreement = [&](const Ranks& ranks) {
      double squares = 0;
      for (std::size_t i = 0; i < shape.size(); ++i) {
        Vector weights;
        for (const Floats& rank : ranks) weights.push_back(rank[i]);
        squares += std::pow(Disagreement(weights), 2);
      }
      return std::sqrt(squares);
    };
    if (ring.rate < 1e-9) {  // all agree after one exchange, but for what is lost on the way
      EXPECT_LE(disagreement(history.back()), 0.05 * disagreement(history[0]));
      continue;
    }
    const double rate = std::pow(disagreement(history[kExchanges]) / disagreement(history[0]), 1.0 / kExchanges);
    EXPECT_NEAR(rate, ring.rate, 0.05 * ring.rate) << size << " ranks";
  }
}

}  // namespace
}  // namespace tutti
