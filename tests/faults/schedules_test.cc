// Every schedule that moves messages, over every transport, under every fault.
#include "tests/faults/schedules.h"

#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "absl/strings/str_cat.h"

namespace tutti {
namespace {

using Case = std::tuple<std::string, const Schedule*>;

class FaultySchedulesTest : public testing::TestWithParam<Case> {
 protected:
  static Endings Run(const FaultyWorld& world) {
    return RunWithFaults(world, [](Communicator& comm) { return CallSome(comm, *std::get<1>(GetParam())); });
  }
  static FaultyWorld World(const Fault& fault, std::uint64_t seed = 1) {
    return {.transport = std::get<0>(GetParam()), .plan = {.seed = seed, .faults = {fault}}};
  }
};

TEST_P(FaultySchedulesTest, NuisancesDoNoHarm) {
  FaultyWorld world = World({.kind = FaultKind::kDelay, .chance = 0.3, .delay = absl::Milliseconds(2)});
  world.plan.faults.push_back({.kind = FaultKind::kReorder, .chance = 0.3, .delay = absl::Milliseconds(2)});
  world.plan.faults.push_back({.kind = FaultKind::kDuplicate, .chance = 0.3});
  world.plan.faults.push_back({.kind = FaultKind::kSlow, .delay = absl::Microseconds(50), .bytes_per_second = 1e9});
  for (const int size : {2, 3, 5}) {
    world.size = size;
    ++world.plan.seed;
    const Endings endings = Run(world);
    ExpectNoHarm(endings);
    EXPECT_FALSE(endings.events.empty());
  }
}

TEST_P(FaultySchedulesTest, TheDeadAreNamed) {
  int deaths = 0;
  for (const std::int64_t number : {0, 1, 3, 6}) {
    const Rank victim = static_cast<Rank>(number % 3);
    const Endings endings = Run(World({.kind = FaultKind::kKill, .from = victim, .first = number, .last = number}));
    ExpectDeathOf(victim, endings);
    deaths += endings.events.empty() ? 0 : 1;
  }
  EXPECT_GT(deaths, 0);
}

TEST_P(FaultySchedulesTest, ALostMessageEndsInTime) {
  for (const FaultKind kind : {FaultKind::kDrop, FaultKind::kHalfOpen}) {
    FaultyWorld world = World({.kind = kind, .chance = 0.5});
    world.timeout = kShortTimeout;
    const Endings endings = Run(world);
    ExpectLoss(world, endings);
    EXPECT_FALSE(endings.events.empty());
  }
}

TEST_P(FaultySchedulesTest, ATruncatedMessageNamesBothLengths) {
  for (const std::uint64_t seed : {1, 2}) {
    const Endings endings = Run(World({.kind = FaultKind::kTruncate, .chance = 0.4}, seed));
    ExpectTruncation(endings);
    EXPECT_FALSE(endings.events.empty());
  }
}

INSTANTIATE_TEST_SUITE_P(, FaultySchedulesTest,
                         testing::Combine(testing::ValuesIn(WorldTransports()), testing::ValuesIn(MessageSchedules())),
                         [](const auto& test) {
                           const Schedule& schedule = *std::get<1>(test.param);
                           return absl::StrCat(std::get<0>(test.param), "_", Name(schedule.collective), "_",
                                               schedule.name);
                         });

TEST(MessageSchedules, AreMostOfAll) { EXPECT_GE(MessageSchedules().size(), 15u); }

}  // namespace
}  // namespace tutti
