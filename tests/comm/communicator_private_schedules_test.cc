// Schedules for buffers in ordinary memory, which peers cannot map: what they touch, and when they are chosen.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/harness/calls.h"
#include "tests/harness/expected_results.h"
#include "tests/harness/sweeps.h"
#include "tutti/cost_model.h"
#include "tutti/extension.h"
#include "tutti/selector.h"
#include "tutti/version.h"

namespace tutti {
namespace {

// Schedules with Schedule::touches_only_scratch_of_peers do what this field claims.
TEST(StagedSchedulesTest, TouchOnlyScratchOfTheirPeers) {
  int claimed = 0;
  for (const Schedule* schedule : AllSchedules()) {
    if (!schedule->touches_only_scratch_of_peers) continue;
    claimed += schedule->competes_for_mapped_buffers ? 0 : 1;
    for (const int size : SweptWorlds({2, 3, 4, 7, 16})) {
      const std::vector<std::vector<int>> nodes = NodesFor(*schedule, size);
      for (Rank rank = 0; rank < size && !nodes.empty(); ++rank) {
        for (const bool in_place : {false, true}) {
          if (in_place && !HasInPlaceForm(schedule->collective)) continue;
          const CollectiveSpec call = {.collective = schedule->collective, .root = size / 2, .in_place = in_place};
          const std::int64_t count = schedule->competes_for_mapped_buffers ? 1000 : 50'000;
          const CollectiveSpec spec = SpecOf(call, count, rank, size);
          const absl::StatusOr<Plan> plan = BuildPlan(
              *schedule, spec, rank, size, {.segment_bytes = 8 << 10, .peers_mapped = true, .nodes = nodes.back()});
          ASSERT_TRUE(plan.ok()) << plan.status();
          for (const Ref& ref : plan->refs) {
            EXPECT_TRUE(ref.owner == kSelf || ref.owner == rank || ref.space == Space::kScratch) << schedule->name;
          }
        }
      }
    }
  }
  EXPECT_EQ(claimed, 9) << "one for each collective that has buffers, and no point-to-point call";
}

// Large buffers in ordinary memory pass through scratch; those that peers can map do not.
TEST(StagedSchedulesTest, AreChosenForPrivateBuffers) {
  const PlanOptions mapped = {.peers_mapped = true};
  for (const Collective collective :
       {Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather, Collective::kAllToAll}) {
    for (const int size : {2, 4, 8}) {
      const CollectiveSpec spec = {.collective = collective, .count = 4 << 20};
      const absl::StatusOr<const Schedule*> chosen = ChooseSchedule(spec, size, mapped);
      ASSERT_TRUE(chosen.ok());
      EXPECT_TRUE((*chosen)->competes_for_mapped_buffers) << ToString(spec) << " on " << size;
      const absl::StatusOr<const Schedule*> other = ChooseForPrivateBuffers(**chosen, spec, size, mapped);
      ASSERT_TRUE(other.ok());
      EXPECT_EQ((*other)->name, "staged") << ToString(spec) << " on " << size;
    }
  }
}

// Where processes can be read, buffers of 32 KiB and more are: by the schedule itself, where that only copies, or by
// one that does.
TEST(StagedSchedulesTest, AreNotChosenWhereProcessesCanBeRead) {
  const PlanOptions reading = {.peers_mapped = true, .reads_processes = true};
  const std::pair<Collective, absl::string_view> readers[] = {
      {Collective::kBroadcast, "direct"}, {Collective::kScatter, "direct"},  {Collective::kGather, "pull"},
      {Collective::kAllGather, "pull"},   {Collective::kAllToAll, "direct"}, {Collective::kAllReduce, "staged"}};
  for (const auto& [collective, name] : readers) {
    const CollectiveSpec spec = {.collective = collective, .count = 4 << 20};
    const Schedule& chosen = **ChooseSchedule(spec, 4, reading);
    EXPECT_EQ((*ChooseForPrivateBuffers(chosen, spec, 4, reading))->name, name) << ToString(spec);
    EXPECT_TRUE(chosen.competes_for_mapped_buffers);
    EXPECT_EQ(ReadsProcesses(**ChooseForPrivateBuffers(chosen, spec, 4, reading), spec, 4, reading), name != "staged");
  }
  const Schedule& direct = **FindSchedule(Collective::kBroadcast, "direct");
  const auto reads = [&](std::int64_t floats, int size, const PlanOptions& options) {
    return ReadsProcesses(direct, {.collective = Collective::kBroadcast, .count = floats}, size, options);
  };
  EXPECT_TRUE(reads(8 << 10, 2, reading));
  EXPECT_TRUE(reads(8 << 10, 4, reading));
  EXPECT_FALSE(reads(8 << 10, 5, reading)) << "the root's one copy to scratch serves many readers";
  CostModel of_two = DefaultCostModel();
  of_two.cores_per_node = 2;
  PlanOptions crowded = reading;
  crowded.cost_model = std::make_shared<const CostModel>(of_two);
  EXPECT_TRUE(reads(8 << 10, 2, crowded));
  EXPECT_FALSE(reads(8 << 20, 3, crowded));
  const auto reads_in = [&](Collective collective, absl::string_view schedule, std::int64_t floats, int size) {
    return ReadsProcesses(**FindSchedule(collective, schedule), {.collective = collective, .count = floats}, size,
                          crowded);
  };
  EXPECT_FALSE(reads_in(Collective::kGather, "pull", (256 << 10) - 1, 3));
  EXPECT_TRUE(reads_in(Collective::kGather, "pull", 256 << 10, 3));
  EXPECT_TRUE(reads_in(Collective::kScatter, "direct", 8 << 10, 3));
  EXPECT_TRUE(reads_in(Collective::kAllToAllV, "direct", 0, 3));
  EXPECT_FALSE(reads((8 << 10) - 1, 2, reading));
  EXPECT_FALSE(reads(8 << 10, 1, reading));
  EXPECT_FALSE(reads(8 << 10, 2, {.peers_mapped = true}));
  EXPECT_FALSE(reads(8 << 10, 2, {.peers_mapped = false, .reads_processes = true}));
  EXPECT_FALSE(reads(8 << 10, 4, {.peers_mapped = true, .nodes = {0, 0, 1, 1}, .reads_processes = true}));
}

constexpr Schedule kOddOnRank2 = {
    .collective = Collective::kAllReduce,
    .name = "odd_on_rank_2",
    .summary = "begins as direct does, but not on rank 2; does nothing, so that nothing is faster",
    .cost = "",
    .supports = SupportsMappedPeers,
    .build =
        [](PlanBuilder& b) {
          if (b.rank() == 2) b.Copy(b.Scratch(b.in().dtype, b.in().count()), b.in());
          b.Signal();
          b.WaitAll();
        },
    .touches_only_scratch_of_peers = true,
    .competes_for_mapped_buffers = false,
};

// Chooses for private buffers in a process that has the schedule, and exits with the choice.
[[noreturn]] void ChooseForPrivateBuffersWithExtension() {
  static const Schedule* const schedules[] = {&kOddOnRank2};
  const absl::Status registered =
      RegisterExtension({.name = "tests", .tutti_version = Version(), .schedules = schedules});
  const Schedule& direct = **FindSchedule(Collective::kAllReduce, "direct");
  std::fprintf(stderr, "%s", registered.ToString().c_str());
  for (const int size : {2, 4}) {
    std::fprintf(stderr, ", %s",
                 std::string((*ChooseForPrivateBuffers(direct, {.count = 4 << 20}, size, {.peers_mapped = true}))->name)
                     .c_str());
  }
  std::exit(3);
}

// A call goes over to the plan for private buffers on all ranks or on none.
TEST(StagedSchedulesDeathTest, AreChosenOnlyWhereTheirPlansBeginAlikeOnAllRanks) {
  EXPECT_EXIT(ChooseForPrivateBuffersWithExtension(), testing::ExitedWithCode(3), "OK, odd_on_rank_2, staged$");
}

}  // namespace
}  // namespace tutti
