// States are saved, and loaded by the world that saved them, or by a world of another size.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/harness/sweeps.h"
#include "tests/harness/training.h"
#include "tests/sync/saved_state.h"

namespace tutti {
namespace {

// A checkpoint of all ranks.
struct Stop {
  Ranks weights;
  std::vector<std::string> states;
  std::string qadam;  // the optimizer's state, equal on all ranks
};

// Trains for `steps` steps of `training` and returns a checkpoint; `flush`: calls Flush before.
Stop TrainAndStop(const Training& training, int steps, bool flush = false) {
  Stop stop{Ranks(training.size()), std::vector<std::string>(training.size()), ""};
  RunReplicas(training, [&](Communicator& world, Replica& replica) {
    for (int step = 0; step < steps; ++step) {
      const absl::Status status = replica.Step(training.gradients[step][world.rank()], training.lr);
      ASSERT_TRUE(status.ok()) << status;
    }
    if (flush) {
      ASSERT_TRUE(replica.synchronizer().Flush().ok());
    }
    stop.weights[world.rank()] = replica.weights();
    stop.states[world.rank()] = replica.synchronizer().SaveState();
    if (replica.qadam() != nullptr && world.rank() == 0) stop.qadam = replica.qadam()->SaveState();
  });
  return stop;
}

enum class Given { kOwnState, kAllStates };

// Goes on from `stop` to the end of `training`; returns the weights after every step from `begin` on.
History GoOn(const Training& training, const Stop& stop, int begin, Given given) {
  History history(training.gradients.size(), Ranks(training.size()));
  RunReplicas(training, [&](Communicator& world, Replica& replica) {
    const Rank rank = world.rank();
    replica.weights() = stop.weights[static_cast<std::size_t>(rank) % stop.weights.size()];
    const absl::Status loaded = given == Given::kOwnState ? replica.synchronizer().LoadState({stop.states[rank]})
                                                          : replica.synchronizer().LoadState(stop.states);
    ASSERT_TRUE(loaded.ok()) << loaded;
    EXPECT_EQ(replica.synchronizer().step(), begin);
    if (replica.qadam() != nullptr) {
      ASSERT_TRUE(replica.qadam()->LoadState(stop.qadam).ok());
    }
    for (std::size_t step = static_cast<std::size_t>(begin); step < training.gradients.size(); ++step) {
      const absl::Status status = replica.Step(training.gradients[step][rank], training.lr);
      ASSERT_TRUE(status.ok()) << status;
      history[step][rank] = replica.weights();
    }
  });
  return history;
}

class Interrupted : public ::testing::TestWithParam<const char*> {};

TEST_P(Interrupted, TrainingGoesOnBitForBit) {
  constexpr int kSteps = 14;
  for (const int size : {1, 2, 4, 5}) {
    const Training training = RandomTraining(GetParam(), size, kSteps);
    const History whole = Train(training);
    for (const int begin : {0, 1, 7}) {
      if (kShortSweeps && begin < 7) continue;
      const Stop stop = TrainAndStop(training, begin);
      for (const Given given : {Given::kOwnState, Given::kAllStates}) {
        const History rest = GoOn(training, stop, begin, given);
        for (int step = begin; step < kSteps; ++step) {
          ASSERT_EQ(rest[step], whole[step]) << size << " ranks, interrupted after " << begin << ", step " << step;
        }
      }
    }
  }
}

// A checkpoint after a Flush, as docs/checkpoints.md tells users to make it.
TEST_P(Interrupted, AfterAFlushToo) {
  Training training = RandomTraining(GetParam(), 4, 10);
  Ranks whole(4);
  RunReplicas(training, [&](Communicator& world, Replica& replica) {
    for (int step = 0; step < 10; ++step) {
      if (step == 5) {
        ASSERT_TRUE(replica.synchronizer().Flush().ok());
      }
      ASSERT_TRUE(replica.Step(training.gradients[step][world.rank()], training.lr).ok());
    }
    whole[world.rank()] = replica.weights();
  });
  const Stop stop = TrainAndStop(training, 5, /*flush=*/true);
  EXPECT_EQ(GoOn(training, stop, 5, Given::kOwnState).back(), whole);
}

TEST_P(Interrupted, StateIsTheSameWhenSavedAgain) {
  const Training training = RandomTraining(GetParam(), 4, 5);
  const Stop stop = TrainAndStop(training, 5);
  RunReplicas(training, [&](Communicator& world, Replica& replica) {
    replica.weights() = stop.weights[world.rank()];
    ASSERT_TRUE(replica.synchronizer().LoadState({stop.states[world.rank()]}).ok());
    EXPECT_EQ(replica.synchronizer().SaveState(), stop.states[world.rank()]);
  });
}

TEST_P(Interrupted, TrainingGoesOnInAWorldOfAnotherSize) {
  for (const auto& [before, after] :
       {std::pair(4, 8), std::pair(4, 2), std::pair(2, 1), std::pair(1, 2), std::pair(5, 3)}) {
    if (after > kMaxRanksSwept) continue;
    const Stop stop = TrainAndStop(RandomTraining(GetParam(), before, 4), 4, /*flush=*/true);
    const History rest = GoOn(RandomTraining(GetParam(), after, 8), stop, 4, Given::kAllStates);
    for (const Floats& weights : rest.back()) {
      EXPECT_TRUE(std::all_of(weights.begin(), weights.end(), [](float w) { return std::isfinite(w); }));
    }
  }
}

// The checkpoint of one rank, as those who save on rank 0 alone have it.
TEST(StatesOfOneRank, AreEnoughForStrategiesWithoutState) {
  for (const char* const strategy :
       {"gradient_allreduce", "bytegrad", "decentralized:peer_selection_mode=all", "qadam:warmup_steps=2"}) {
    for (const auto& [before, after] : {std::pair(3, 3), std::pair(3, 2), std::pair(2, 1), std::pair(2, 4)}) {
      SCOPED_TRACE(absl::StrCat(strategy, " of ", before, " ranks on ", after));
      Stop stop = TrainAndStop(RandomTraining(strategy, before, 4), 4, /*flush=*/true);
      stop.states.resize(1);
      const History rest = GoOn(RandomTraining(strategy, after, 6), stop, 4, Given::kAllStates);
      for (const Floats& weights : rest[4]) EXPECT_FALSE(weights.empty());
    }
  }
}

TEST(StatesOfOneRank, AreRefusedWhereOthersHadStatesToo) {
  Training training = RandomTraining("bytegrad:error_feedback=true,hierarchical=true", 4, 3);
  training.world.ranks_per_node = 2;
  const Stop stop = TrainAndStop(training, 3);
  // Rank 1 follows the leader of its node, and has no residual: its state says nothing of what leaders hold back.
  for (const Rank saved : {0, 1}) {
    RunReplicas(RandomTraining("bytegrad:error_feedback=true,hierarchical=true", 1, 1),
                [&](Communicator& /*world*/, Replica& replica) {
                  const absl::Status refused = replica.synchronizer().LoadState({stop.states[saved]});
                  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
                  EXPECT_THAT(std::string(refused.message()),
                              ::testing::AllOf(::testing::HasSubstr("or the states of all 4 ranks"),
                                               ::testing::HasSubstr("remove the key _extra_state")));
                });
  }
}

std::string NameOf(const ::testing::TestParamInfo<const char*>& strategy) {
  std::string name = strategy.param;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(
    Strategies, Interrupted,
    ::testing::Values("gradient_allreduce", "bytegrad", "bytegrad:error_feedback=true",
                      "qadam:warmup_steps=4,error_feedback=true", "decentralized:peer_selection_mode=all",
                      "decentralized:peer_selection_mode=shift_one",
                      "decentralized:peer_selection_mode=one_peer_exponential,communication_interval=3",
                      "decentralized:peer_selection_mode=random_pair,seed=5", "low_precision_decentralized",
                      "low_precision_decentralized:communication_interval=3",
                      "bytegrad:rounding=stochastic,error_feedback=true",
                      "low_precision_decentralized:rounding=stochastic"),
    NameOf);

// The residuals, summed over all ranks, by bucket, residual and element.
std::map<std::string, double> ResidualSums(const std::vector<std::string>& states) {
  constexpr std::int64_t kResidual = 0;
  std::map<std::string, double> sums;
  for (const std::string& state : states) {
    const SavedState saved = SavedState::Read(state);
    for (std::size_t b = 0; b < saved.buckets.size(); ++b) {
      for (const SavedRange& range : saved.buckets[b].ranges) {
        if (range.kind != kResidual) continue;
        const Floats values = range.floats();
        for (std::size_t i = 0; i < values.size(); ++i) {
          sums[absl::StrCat("bucket ", b, " ", range.name, " ", range.first_element + static_cast<std::int64_t>(i))] +=
              values[i];
        }
      }
    }
  }
  return sums;
}

// The number of ranks, and of ranks on each node (0: one node), of the former world and of the new one.
struct Change {
  int before, after;
  int nodes_before = 0, nodes_after = 0;
};

class Residuals : public ::testing::TestWithParam<const char*> {};

// Residuals of gradients are averaged, so they are scaled with the number of ranks; residuals of the average are not.
TEST_P(Residuals, KeepWhatIsDueInAnotherWorld) {
  // A model whose buckets are large enough to be encoded in all worlds of the test.
  const Model model = {
      .counts = {3000, 1000, 501}, .bucket_bytes = 6500, .first_bucket_bytes = 3000, .buckets = {{2}, {1}, {0}}};
  for (const auto& [before, after, nodes_before, nodes_after] :
       {Change{4, 8}, Change{8, 4}, Change{4, 2}, Change{2, 4}, Change{5, 3}, Change{8, 6, 4, 3}, Change{4, 4, 2, 1}}) {
    Training first = RandomTraining(GetParam(), before, 6);
    first.model = model;
    first.world.ranks_per_node = nodes_before;
    first.initial = RandomNumbers(model.count(), 3);
    first.gradients = RandomGradients(6, before, model.count());
    const Stop stop = TrainAndStop(first, 6);
    Training second = first;
    second.world.ranks_per_node = nodes_after;
    second.gradients = RandomGradients(10, after, model.count());
    Stop shared{Ranks(after), std::vector<std::string>(after), ""};
    RunReplicas(second, [&](Communicator& world, Replica& replica) {
      ASSERT_TRUE(replica.synchronizer().LoadState(stop.states).ok());
      shared.states[world.rank()] = replica.synchronizer().SaveState();
    });
    const std::map<std::string, double> sums = ResidualSums(stop.states);
    const std::map<std::string, double> kept = ResidualSums(shared.states);
    ASSERT_EQ(kept.size(), sums.size());
    double largest = 0;
    for (const auto& [place, sum] : sums) {
      const double share = absl::StrContains(place, " gradient ") ? static_cast<double>(after) / before : 1;
      ASSERT_NEAR(kept.at(place), sum * share, 2e-6) << place << ", from " << before << " to " << after << " ranks";
      largest = std::max(largest, std::abs(sum));
    }
    EXPECT_GT(largest, 1e-4) << "the residuals are worth keeping";
    const History rest = GoOn(second, stop, 6, Given::kAllStates);
    for (const Floats& weights : rest.back()) EXPECT_EQ(weights, rest.back()[0]);
  }
}

INSTANTIATE_TEST_SUITE_P(Strategies, Residuals,
                         ::testing::Values("bytegrad:error_feedback=true", "qadam:warmup_steps=2,error_feedback=true"),
                         NameOf);

// A bucket that is too small to be encoded in one of the worlds has no residuals there.
TEST(ResidualsOfSmallBuckets, MayBeMissing) {
  for (const auto& [before, after] : {std::pair(1, 2), std::pair(2, 1), std::pair(8, 2), std::pair(2, 8)}) {
    const Stop stop = TrainAndStop(RandomTraining("bytegrad:error_feedback=true", before, 3), 3);
    const History rest = GoOn(RandomTraining("bytegrad:error_feedback=true", after, 6), stop, 3, Given::kAllStates);
    for (const Floats& weights : rest.back()) EXPECT_EQ(weights, rest.back()[0]);
  }
}

// Expects that W of a rank equals R of the rank before and L of the rank after.
void ExpectReplicasAgree(const std::vector<std::string>& states, const Ranks& weights) {
  const Model model = SevenParameters();
  std::vector<SavedState> saved;
  for (const std::string& state : states) saved.push_back(SavedState::Read(state));
  const std::size_t size = saved.size();
  for (std::size_t rank = 0; rank < size; ++rank) {
    for (std::size_t b = 0; b < saved[rank].buckets.size(); ++b) {
      const SavedRange* own = saved[rank].Find(b, "own");
      const SavedRange* right = saved[(rank + size - 1) % size].Find(b, "right");
      const SavedRange* left = saved[(rank + 1) % size].Find(b, "left");
      ASSERT_TRUE(own != nullptr && left != nullptr && right != nullptr) << "bucket " << b;
      EXPECT_EQ(own->bytes, right->bytes) << "rank " << rank << ", bucket " << b;
      EXPECT_EQ(own->bytes, left->bytes) << "rank " << rank << ", bucket " << b;
      Floats in_bucket;
      for (const int i : model.buckets[b]) {
        const auto begin = weights[rank].begin() + model.first(i);
        in_bucket.insert(in_bucket.end(), begin, begin + model.counts[i]);
      }
      EXPECT_EQ(own->floats(), in_bucket) << "rank " << rank << ", bucket " << b;
    }
  }
}

TEST(ReplicasOfNeighbours, StayEqualBitForBit) {
  for (const int size : SweptWorlds({2, 3, 4, 5, 8})) {
    const Training training = RandomTraining("low_precision_decentralized", size, 20);
    for (const int steps : {1, 2, 20}) {
      if (kShortSweeps && steps < 20) continue;
      const Stop stop = TrainAndStop(training, steps);
      ExpectReplicasAgree(stop.states, stop.weights);
    }
    // Saves states after a Flush in mid-run and the steps that follow.
    std::vector<std::string> states(size);
    Ranks weights(size);
    RunReplicas(training, [&](Communicator& world, Replica& replica) {
      for (int step = 0; step < 20; ++step) {
        ASSERT_TRUE(replica.Step(training.gradients[step][world.rank()], training.lr).ok());
        if (step == 9) {
          ASSERT_TRUE(replica.synchronizer().Flush().ok());
        }
      }
      states[world.rank()] = replica.synchronizer().SaveState();
      weights[world.rank()] = replica.weights();
    });
    ExpectReplicasAgree(states, weights);
  }
}

// Among other nodes neighbours are other ranks, although states have equal names and sizes. Ranks that go on with the
// weights of a checkpoint before a Flush, which differ, get their average, from which replicas begin anew.
TEST(ReplicasOfNeighbours, BeginAnewFromTheAverageAmongOtherNodes) {
  for (const int ranks_per_node : {1, 2}) {  // leaders, which alone have replicas, are all ranks, or 0 and 2
    Training training = RandomTraining("low_precision_decentralized", 4, 6);
    training.world.ranks_per_node = 3 - ranks_per_node;
    const Stop stop = TrainAndStop(training, 3);
    ASSERT_NE(stop.weights[0], stop.weights[2]);
    training.world.ranks_per_node = ranks_per_node;
    Stop later;
    std::vector<std::string> states(4);
    Ranks averages(4);
    Ranks weights(4);
    RunReplicas(training, [&](Communicator& world, Replica& replica) {
      const Rank rank = world.rank();
      replica.weights() = stop.weights[rank];
      const absl::Status refused = replica.synchronizer().LoadState({stop.states[rank]});
      EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(std::string(refused.message()), ::testing::HasSubstr("with the same nodes"));
      ASSERT_EQ(replica.weights(), stop.weights[rank]);
      ASSERT_EQ(replica.synchronizer().LoadState(stop.states), absl::OkStatus());
      averages[rank] = replica.weights();
      Floats other = replica.weights();  // of which nothing but a mistake makes replicas differ now
      if (rank == 1) other[0] += 1;
      const auto bytes = static_cast<std::int64_t>(other.size() * sizeof(float));
      EXPECT_EQ(replica.synchronizer().CheckState({{other.data(), bytes, "w"}}).code(), absl::StatusCode::kDataLoss);
      for (int step = 3; step < 6; ++step) {
        ASSERT_EQ(replica.Step(training.gradients[step][rank], training.lr), absl::OkStatus());
      }
      states[rank] = replica.synchronizer().SaveState();
      weights[rank] = replica.weights();
    });
    for (std::size_t i = 0; i < averages[0].size(); ++i) {
      double sum = 0;
      for (const Floats& of_rank : stop.weights) sum += of_rank[i];
      ASSERT_NEAR(averages[0][i], sum / 4, 1e-6);
    }
    for (const Floats& of_rank : averages) ASSERT_EQ(of_rank, averages[0]);
    for (Rank rank = 0; rank < 4; rank += ranks_per_node) {
      later.states.push_back(states[rank]);
      later.weights.push_back(weights[rank]);
    }
    ExpectReplicasAgree(later.states, later.weights);
  }
}

TEST(ReplicasOfNeighbours, BeginAnewInAWorldOfAnotherSize) {
  const Stop stop = TrainAndStop(RandomTraining("low_precision_decentralized", 4, 5), 5, /*flush=*/true);
  const Training training = RandomTraining("low_precision_decentralized", 8, 10);
  Stop later{Ranks(8), std::vector<std::string>(8), ""};
  RunReplicas(training, [&](Communicator& world, Replica& replica) {
    replica.weights() = stop.weights[0];
    ASSERT_TRUE(replica.synchronizer().LoadState(stop.states).ok());
    for (int step = 5; step < 10; ++step) {
      ASSERT_TRUE(replica.Step(training.gradients[step][world.rank()], training.lr).ok());
    }
    later.states[world.rank()] = replica.synchronizer().SaveState();
    later.weights[world.rank()] = replica.weights();
  });
  ExpectReplicasAgree(later.states, later.weights);
}

}  // namespace
}  // namespace tutti
