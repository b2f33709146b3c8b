// The plans of every algorithm of this build, for worlds of many sizes, keep their promises: they are verified, not
// run.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/harness/native_machine.h"
#include "tests/harness/sweeps.h"
#include "tutti/algorithm.h"
#include "tutti/codec.h"
#include "tutti/peer_selection.h"
#include "tutti/schedule.h"
#include "tutti/verify.h"

namespace tutti {
namespace {

class EveryAlgorithmTest : public ::testing::TestWithParam<const Algorithm*> {
 protected:
  void Sweep(const Strategy& strategy, int size, std::int64_t count, DType dtype, const PlanOptions& options) {
    const auto participants = static_cast<int>(ParticipantsOf(strategy, size, options).size());
    for (int round = 0; round < RoundsOf(strategy, participants); ++round) {
      std::vector<Plan> plans;
      for (Rank rank = 0; rank < size; ++rank) {
        absl::StatusOr<Plan> plan = BuildPlan(strategy, dtype, count, rank, size, options, round);
        if (absl::IsUnimplemented(plan.status())) return;
        ASSERT_TRUE(plan.ok()) << plan.status();
        plans.push_back(*std::move(plan));
      }
      const absl::Status status = Verify(plans);
      ++verified_[strategy.ToString()];
      EXPECT_TRUE(status.ok()) << strategy.ToString() << ", round " << round << ", " << size << " ranks, " << count
                               << " " << Name(dtype) << (options.peers_mapped ? " mapped, " : ", ") << "nodes "
                               << absl::StrJoin(options.nodes, " ") << ": " << status;
    }
  }

  // Expects that at most `never` strategies, which refuse every bucket, were verified in no world, and the others in
  // `at_least` worlds and rounds on average.
  void ExpectVerified(const std::vector<Strategy>& strategies, std::size_t at_least, std::size_t never) const {
    std::vector<std::string> unserved;
    for (const Strategy& strategy : strategies) {
      if (!verified_.contains(strategy.ToString())) unserved.push_back(strategy.ToString());
    }
    EXPECT_LE(unserved.size(), never) << absl::StrJoin(unserved, "\n");
    std::size_t worlds = 0;
    for (const auto& [strategy, times] : verified_) worlds += times;
    EXPECT_GE(worlds, at_least * (strategies.size() - unserved.size()));
  }

  // The algorithm with its defaults, and with every option that changes its plans.
  static std::vector<Strategy> Variants() {
    std::vector<Strategy> variants = {*ParseStrategy(GetParam()->name)};
    auto add = [&](const std::string& options) {
      absl::StatusOr<Strategy> variant = ParseStrategy(absl::StrCat(GetParam()->name, ":", options));
      if (variant.ok()) variants.push_back(*std::move(variant));  // the algorithm has no such option
    };
    for (const PeerSelection* selection : AllPeerSelections())
      add(absl::StrCat("peer_selection_mode=", selection->name));
    add("error_feedback=true");
    for (const Codec* codec : AllCodecs()) {
      add(absl::StrCat("codec=", codec->name));
      add(absl::StrCat("error_feedback=true,codec=", codec->name));
    }
    for (const Schedule* schedule : AllSchedules()) {
      if (schedule->collective != Collective::kAllReduce) continue;
      add(absl::StrCat("schedule=", schedule->name));
      add(absl::StrCat("codec=bf16,schedule=", schedule->name));
    }
    return variants;
  }

  // The number of `codec=` variants that the algorithm refuses, because it encodes with casts alone; 0 for other
  // algorithms.
  static std::size_t CodecsThatAreNoCasts() {
    if (GetParam()->codec != "none") return 0;
    return static_cast<std::size_t>(
        std::count_if(AllCodecs().begin(), AllCodecs().end(), [](const Codec* codec) { return !codec->linear; }));
  }

 private:
  std::map<std::string, std::size_t> verified_;  // worlds and rounds, by strategy
};

TEST_P(EveryAlgorithmTest, KeepsItsPromiseInEveryWorld) {
  const Strategy defaults = *ParseStrategy(GetParam()->name);
  for (int size : SweptWorlds({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 32, 64})) {
    for (std::int64_t count : {0, 1, 97, 4096, 65537, 1 << 20}) {
      for (DType dtype : {DType::kF32, DType::kBF16}) {
        for (bool mapped : {false, true}) Sweep(defaults, size, count, dtype, {.peers_mapped = mapped});
        if (HasFailure()) return;
      }
    }
  }
  ExpectVerified({defaults}, 100, 0);
}

TEST_P(EveryAlgorithmTest, KeepsItsPromiseWithEveryOption) {
  const std::vector<Strategy> variants = Variants();
  for (const Strategy& variant : variants) {
    for (int size : SweptWorlds({1, 2, 3, 4, 5, 8, 9})) {
      for (std::int64_t count : {97, 4097}) {
        for (bool mapped : {false, true}) Sweep(variant, size, count, DType::kF32, {.peers_mapped = mapped});
        Sweep(variant, size, count, DType::kF16, {.segment_bytes = 1024});
        Sweep(variant, size, count, DType::kF32, WithNative({}));
        if (HasFailure()) return;
      }
    }
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      Sweep(variant, 4, 4097, dtype, {.peers_mapped = true, .nodes = {0, 0, 1, 1}});
    }
  }
  ExpectVerified(variants, 7, CodecsThatAreNoCasts());
}

// Ranks of a node are neighbours or mixed up; nodes have one rank, several, or unequal numbers (which some algorithms
// refuse).
TEST_P(EveryAlgorithmTest, KeepsItsPromiseBetweenNodes) {
  const std::vector<std::vector<int>> worlds = {{0, 1},       {7, 7, 7},    {0, 0, 1},          {0, 0, 1, 1},
                                                {0, 1, 2, 3}, {1, 0, 1, 0}, {0, 0, 1, 1, 2, 2}, {0, 1, 1, 2, 2, 2, 2}};
  std::vector<Strategy> variants = Variants();
  for (Strategy& variant : variants) {
    // The schedule `hierarchical` knows nodes itself; the ranks that speak for their nodes cannot use it.
    const bool by_schedule = std::any_of(variant.options.begin(), variant.options.end(), [](const auto& option) {
      return option.first == "schedule" && option.second == "hierarchical";
    });
    for (auto& [name, value] : variant.options) {
      if (name == "hierarchical" && !by_schedule) value = "true";
    }
    for (const std::vector<int>& nodes : worlds) {
      const int size = static_cast<int>(nodes.size());
      if (size > kMaxRanksSwept) continue;
      for (std::int64_t count : {0, 1, 97, 4097}) {
        for (DType dtype : {DType::kF32, DType::kBF16}) {
          const PlanOptions options = {.segment_bytes = 4096, .nodes = nodes};
          Sweep(variant, size, count, dtype, options);
          Sweep(variant, size, count, dtype, {.segment_bytes = 4096, .peers_mapped = true, .nodes = nodes});
          Sweep(variant, size, count, dtype, WithNative(options, kFastNative, kSlowNative));
          if (HasFailure()) return;
        }
      }
    }
  }
  ExpectVerified(variants, 50, CodecsThatAreNoCasts());
}

// Where a native transport is fast, every exchange that takes the selected schedule is native.
TEST_P(EveryAlgorithmTest, KeepsItsPromiseByNativeCollectives) {
  const Strategy defaults = *ParseStrategy(GetParam()->name);
  for (int size : SweptWorlds({1, 2, 3, 4, 5, 6, 7, 8, 13, 17})) {
    std::vector<int> pairs;
    for (Rank rank = 0; rank < size; ++rank) pairs.push_back(rank / 2);
    for (std::int64_t count : {0, 1, 97, 4099}) {
      for (DType dtype : {DType::kF32, DType::kBF16}) {
        for (bool mapped : {false, true}) {
          Sweep(defaults, size, count, dtype, WithNative({.peers_mapped = mapped}));
          Sweep(defaults, size, count, dtype, WithNative({.peers_mapped = mapped}, kSlowNative, kSlowNative));
        }
        Sweep(defaults, size, count, dtype, WithNative({.nodes = pairs}));
        Sweep(defaults, size, count, dtype, WithNative({.nodes = pairs}, kFastNative, kSlowNative));
        if (HasFailure()) return;
      }
    }
  }
  ExpectVerified({defaults}, 100, 0);
}

std::string NameOf(const ::testing::TestParamInfo<const Algorithm*>& algorithm) {
  return std::string(algorithm.param->name);
}

INSTANTIATE_TEST_SUITE_P(All, EveryAlgorithmTest, ::testing::ValuesIn(AllAlgorithms().begin(), AllAlgorithms().end()),
                         NameOf);

}  // namespace
}  // namespace tutti
