// Random worlds, schedules and faults. A failure prints its seed; TUTTI_FAULT_SEEDS="a b" runs the seeds a … b - 1.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "tests/faults/schedules.h"

namespace tutti {
namespace {

constexpr FaultKind kNuisances[] = {FaultKind::kDelay, FaultKind::kReorder, FaultKind::kDuplicate, FaultKind::kSlow};
constexpr FaultKind kHarms[] = {FaultKind::kDrop, FaultKind::kHalfOpen, FaultKind::kTruncate, FaultKind::kKill};

void RunSeed(std::uint64_t seed) {
  std::minstd_rand random(static_cast<unsigned>(seed * 7919 + 1));
  const auto below = [&](std::size_t n) { return random() % n; };
  const std::vector<const Schedule*> schedules = MessageSchedules();
  const Schedule& schedule = *schedules[below(schedules.size())];
  FaultyWorld world;
  world.size = 2 + static_cast<int>(below(4));
  world.transport = WorldTransports()[below(WorldTransports().size())];
  world.ranks_per_node = static_cast<int>(below(3));
  world.plan.seed = seed;
  for (const FaultKind kind : kNuisances) {
    if (below(2) == 0) continue;
    world.plan.faults.push_back({.kind = kind, .chance = 0.2, .delay = absl::Milliseconds(3), .bytes_per_second = 1e8});
  }
  FaultyWorld harmed = world;
  const FaultKind harm = kHarms[below(std::size(kHarms))];
  const Rank rank = static_cast<Rank>(below(world.size));
  const auto number = static_cast<std::int64_t>(below(12));
  harmed.plan.faults.push_back({.kind = harm, .from = rank, .first = number, .last = number});
  // Only faults of the kind `harm` stay: messages that are late or out of order would be taken for lost ones.
  std::erase_if(harmed.plan.faults, [&](const Fault& fault) { return fault.kind != harm; });
  if (harm == FaultKind::kDrop || harm == FaultKind::kHalfOpen) harmed.timeout = kShortTimeout;

  SCOPED_TRACE(absl::StrCat("seed ", seed, ": ", Name(schedule.collective), " ", schedule.name, ", ", world.size,
                            " ranks over ", world.transport, ", ", world.ranks_per_node, " per node, fault ",
                            static_cast<int>(harm), " of message ", number, " of rank ", rank));
  const auto body = [&](Communicator& comm) { return CallSome(comm, schedule); };
  ExpectNoHarm(RunWithFaults(world, body));
  const Endings endings = RunWithFaults(harmed, body);
  if (harm == FaultKind::kKill) {
    ExpectDeathOf(rank, endings);
  } else if (harm == FaultKind::kTruncate) {
    ExpectTruncation(endings);
  } else {
    ExpectLoss(harmed, endings);
  }
}

TEST(FaultSweepSlow, EverySeedEndsWellOrNamesTheRightRank) {
  std::uint64_t first = 1, end = 101;
  if (const char* const seeds = std::getenv("TUTTI_FAULT_SEEDS")) std::istringstream(seeds) >> first >> end;
  const absl::Time enough = absl::Now() + absl::Seconds(45);
  std::uint64_t seed = first;
  for (; seed < end && (std::getenv("TUTTI_FAULT_SEEDS") != nullptr || absl::Now() < enough); ++seed) RunSeed(seed);
  RecordProperty("seeds", static_cast<int>(seed - first));
}

}  // namespace
}  // namespace tutti
