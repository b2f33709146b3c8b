// What autotuning may try: nothing that changes a result.
#include "sync/tuning_space.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tutti/selector.h"

namespace tutti {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::int64_t kMiB = 1 << 20;

// Twelve layers of 3 MiB each.
std::vector<Parameter> Layers() { return std::vector<Parameter>(12, {"layer", DType::kF32, 3 * kMiB / 4, "786432"}); }

TuningSpace SpaceOf(const std::string& strategy, int size = 2, const PlanOptions& plan = {},
                    const SynchronizerOptions& options = {}) {
  return TuningSpaceOf(*ParseStrategy(strategy), Layers(), options, size, plan);
}

std::vector<std::int64_t> SizesIn(const TuningSpace& space) {
  std::vector<std::int64_t> sizes;
  for (const TuningChange& change : space.changes) {
    if (change.bucket_bytes.has_value()) sizes.push_back(*change.bucket_bytes);
  }
  return sizes;
}

int SchedulesIn(const TuningSpace& space) {
  int schedules = 0;
  for (const TuningChange& change : space.changes) schedules += change.schedule.has_value() ? 1 : 0;
  return schedules;
}

bool HasHierarchy(const TuningSpace& space) {
  return !space.changes.empty() && space.changes.back().hierarchical.has_value();
}

TEST(TuningSpace, HasTheSizesThatGiveOtherBuckets) {
  EXPECT_THAT(SizesIn(SpaceOf("gradient_allreduce")), ElementsAre(kMiB, 100 * kMiB));  // 5 MiB hold one layer, as 1 MiB
  const SynchronizerOptions bad = {.bucket_bytes = 64 << 10, .first_bucket_bytes = 64 << 10};
  EXPECT_THAT(SizesIn(SpaceOf("gradient_allreduce", 2, {}, bad)), ElementsAre(25 * kMiB, 100 * kMiB));
}

TEST(TuningSpace, HasTheSchedulesThatServeUnlessOneIsGiven) {
  const TuningSpace space = SpaceOf("gradient_allreduce", 4);
  EXPECT_GE(SchedulesIn(space), 1);
  EXPECT_LE(space.changes.size(), kMaxChanges);
  EXPECT_EQ(SchedulesIn(SpaceOf("gradient_allreduce:schedule=ring", 4)), 0);
  EXPECT_FALSE(SizesIn(SpaceOf("gradient_allreduce:schedule=ring", 4)).empty());
}

TEST(TuningSpace, HasTheHierarchyOfSeveralNodesWithSeveralRanks) {
  EXPECT_FALSE(HasHierarchy(SpaceOf("gradient_allreduce", 4)));
  EXPECT_FALSE(HasHierarchy(SpaceOf("gradient_allreduce", 2, {.nodes = {0, 1}})));
  EXPECT_TRUE(HasHierarchy(SpaceOf("gradient_allreduce", 4, {.nodes = {0, 0, 1, 1}})));
}

TEST(TuningSpace, HasOnlySizesWithACast) {
  const TuningSpace space = SpaceOf("gradient_allreduce:codec=bf16", 4, {.nodes = {0, 0, 1, 1}});
  EXPECT_FALSE(SizesIn(space).empty());
  EXPECT_EQ(SchedulesIn(space), 0);
  EXPECT_FALSE(HasHierarchy(space));
}

TEST(TuningSpace, IsEmptyWhereTheBucketsChangeTheResult) {
  for (const auto& [strategy, reason] : std::vector<std::pair<std::string, std::string>>{
           {"bytegrad", "codec=uint8_block"},
           {"bytegrad:codec=bf16,error_feedback=true", "residuals"},
           {"gradient_allreduce:codec=bf16,rounding=stochastic", "rounding=stochastic"},
           {"gradient_allreduce:codec=bf16,schedule=ring", "schedule=ring"},
           {"qadam", "exchanges momentum"},
           {"decentralized", "exchanges weights"},
           {"low_precision_decentralized", "exchanges weight differences"},
           {"async:warmup_steps=5", "background"}}) {
    const TuningSpace space = SpaceOf(strategy, 4);
    EXPECT_TRUE(space.changes.empty()) << strategy;
    EXPECT_THAT(space.reason, HasSubstr(reason)) << strategy;
  }
  EXPECT_THAT(SpaceOf("gradient_allreduce", 1).reason, HasSubstr("single rank"));
}

// An algorithm of an extension keeps a residual, and has no option that tells so.
TEST(TuningSpace, IsEmptyWhereTheAlgorithmKeepsStates) {
  Algorithm keeps = *ParseStrategy("gradient_allreduce")->algorithm;
  keeps.name = "keeps";
  keeps.options = {};
  keeps.codec = "";
  keeps.supports = [](const Strategy&, const CollectiveSpec&, int, const PlanOptions&) { return absl::OkStatus(); };
  keeps.build = [](const Strategy&, int, PlanBuilder& b) {
    (void)b.Residual("held back", DType::kF32, b.out().count());
    BuildSelected(b);
  };
  const TuningSpace space = TuningSpaceOf({.algorithm = &keeps, .options = {}}, Layers(), {}, 2, {});
  EXPECT_TRUE(space.changes.empty());
  EXPECT_EQ(space.reason, "keeps keeps states that belong to these buckets");
}

// An algorithm of an extension keeps a residual only where it is hierarchical.
TEST(TuningSpace, HasNoChangeWithWhichTheAlgorithmKeepsStates) {
  Algorithm keeps = *ParseStrategy("gradient_allreduce")->algorithm;
  keeps.build = [](const Strategy& strategy, int, PlanBuilder& b) {
    if (strategy.flag("hierarchical")) (void)b.Residual("held back", DType::kF32, b.out().count());
    BuildSelected(b);
  };
  Strategy strategy = *ParseStrategy("gradient_allreduce");
  strategy.algorithm = &keeps;
  const TuningSpace space = TuningSpaceOf(strategy, Layers(), {}, 4, {.nodes = {0, 0, 1, 1}});
  EXPECT_FALSE(SizesIn(space).empty());
  EXPECT_FALSE(HasHierarchy(space));
}

TEST(TuningSpace, PutsATuningIntoTheStrategy) {
  const Strategy strategy =
      StrategyWith({.schedule = "ring", .hierarchical = true}, *ParseStrategy("gradient_allreduce"));
  EXPECT_EQ(strategy.ToString(), ParseStrategy("gradient_allreduce:schedule=ring,hierarchical=true")->ToString());
  const Strategy cast = StrategyWith({.schedule = "", .hierarchical = true}, *ParseStrategy("bytegrad:codec=bf16"));
  EXPECT_EQ(cast.ToString(), ParseStrategy("bytegrad:codec=bf16")->ToString());
}

}  // namespace
}  // namespace tutti
