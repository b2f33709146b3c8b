// Faults while ranks join a world and split it.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/faults/faulty_world.h"

namespace tutti {
namespace {

class FaultyBootstrapTest : public testing::TestWithParam<std::string> {};

// Makes a group of two of three ranks, sums in the group, then sums over all ranks. A rank whose group has failed sums
// over all ranks all the same: if the rank left the world at once, a rank outside the group could see the leave before
// the death that ended the group, and would name the wrong rank.
Outcome SplitAndSum(Communicator& comm) {
  absl::StatusOr<std::unique_ptr<Communicator>> group = comm.Split(comm.rank() == 1 ? 1 : 0, comm.rank());
  if (!group.ok()) return {group.status(), ""};
  absl::Status of_group;
  for (Communicator* const each : {group->get(), &comm}) {
    std::int64_t sum = comm.rank() + 1;
    if (absl::Status status = each->AllReduce(&sum, &sum, 1, DType::kI64, ReduceOp::kSum).Wait(); !status.ok()) {
      if (each == &comm) return {status, ""};
      of_group = status;
      continue;
    }
    const std::int64_t expected = each == &comm ? 6 : comm.rank() == 1 ? 2 : 4;
    if (sum != expected) return {absl::OkStatus(), absl::StrCat("sum ", sum, ", expected ", expected)};
  }
  return {of_group, ""};
}

TEST_P(FaultyBootstrapTest, NuisancesDoNoHarm) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    const FaultyWorld world = {
        .transport = GetParam(),
        .plan = {.seed = seed,
                 .faults = {{.kind = FaultKind::kDelay, .chance = 0.3, .delay = absl::Milliseconds(3)},
                            {.kind = FaultKind::kReorder, .chance = 0.3, .delay = absl::Milliseconds(3)},
                            {.kind = FaultKind::kDuplicate, .chance = 0.5}}}};
    ExpectNoHarm(RunWithFaults(world, SplitAndSum));
  }
}

// The others wait for the dead rank at a memory store, which sees no deaths: their deadline ends the wait, with an
// error that names the dead rank.
TEST_P(FaultyBootstrapTest, ARankThatDiesWhileItJoinsIsNamed) {
  for (const Rank victim : {0, 2}) {
    const FaultyWorld world = {
        .transport = GetParam(),
        .plan = {.faults = {{.kind = FaultKind::kKill, .from = victim, .first = kAtConnect, .last = kAtConnect}}},
        .timeout = absl::Milliseconds(300)};
    const Endings endings = RunWithFaults(world, SplitAndSum);
    EXPECT_EQ(endings.events.size(), 1u);
    EXPECT_LT(endings.took, absl::Seconds(20));
    for (Rank rank = 0; rank < 3; ++rank) {
      const absl::Status& status = endings.ranks[rank].status;
      EXPECT_TRUE(absl::IsUnavailable(status) || (rank != victim && absl::IsDeadlineExceeded(status))) << status;
      const bool names_it =
          absl::StrContains(status.message(), absl::StrCat("rank ", victim)) || ListsAsMissing(victim, status);
      EXPECT_TRUE(names_it) << "rank " << rank << ": " << status;
    }
  }
}

TEST_P(FaultyBootstrapTest, ARankThatDiesAnywhereInASplitIsNamed) {
  const bool is_quick = GetParam() == "inproc";
  for (Rank victim = is_quick ? 0 : 2; victim < 3; ++victim) {
    bool died = true;
    for (std::int64_t number = 0; died; ++number) {
      ASSERT_LT(number, 100);
      const FaultyWorld world = {
          .transport = GetParam(),
          .plan = {.faults = {{.kind = FaultKind::kKill, .from = victim, .first = number, .last = number}}}};
      const Endings endings = RunWithFaults(world, SplitAndSum);
      ExpectDeathOf(victim, endings);
      died = !endings.events.empty();
    }
  }
}

TEST_P(FaultyBootstrapTest, AMessageLostAnywhereInASplitEndsInTime) {
  bool lost = true;
  for (std::int64_t number = 0; lost; ++number) {
    ASSERT_LT(number, 100);
    const FaultyWorld world = {
        .transport = GetParam(),
        .plan = {.faults = {{.kind = FaultKind::kDrop, .from = 2, .to = 0, .first = number, .last = number}}},
        .timeout = kShortTimeout};
    const Endings endings = RunWithFaults(world, SplitAndSum);
    ExpectLoss(world, endings);
    lost = !endings.events.empty();
  }
}

INSTANTIATE_TEST_SUITE_P(, FaultyBootstrapTest, testing::ValuesIn(WorldTransports()),
                         [](const auto& transport) { return transport.param; });

}  // namespace
}  // namespace tutti
