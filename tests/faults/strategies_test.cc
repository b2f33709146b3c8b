// Every algorithm, made and trained with, under every fault.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/faults/faulty_world.h"
#include "tests/faults/replicas.h"
#include "tests/harness/training.h"
#include "tutti/algorithm.h"

namespace tutti {
namespace {

constexpr int kRanks = 3;
constexpr int kSteps = 3;

// Every algorithm by its name, and variants with options that make other messages.
std::vector<std::string> Strategies() {
  std::vector<std::string> names;
  for (const Algorithm* algorithm : AllAlgorithms()) {
    // Pauses between rounds of async must be shorter than a timeout, and short here.
    names.push_back(absl::StrCat(algorithm->name, algorithm->name == "async" ? ":sync_interval_ms=1" : ""));
  }
  names.insert(names.end(),
               {"gradient_allreduce:codec=bf16", "bytegrad:codec=topk,error_feedback=true", "qadam:warmup_steps=1",
                "decentralized:peer_selection_mode=shift_one", "decentralized:peer_selection_mode=ring"});
  return names;
}

std::string NameOf(const testing::TestParamInfo<std::string>& strategy) {
  std::string name = strategy.param;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
}

class FaultyStrategiesTest : public testing::TestWithParam<std::string> {
 protected:
  // Whether the strategy is async, whose weights after a step depend on time.
  static bool IsAsync() { return GetParam().rfind("async", 0) == 0; }

  FaultyStrategiesTest() : training_(RandomTraining(GetParam(), kRanks, kSteps)) {
    training_.world.communicator.mapping = CommunicatorOptions::Mapping::kNever;
  }

  // Trains with the faults of `world`. `expected`: the weights of all ranks after each step, which a rank that ends
  // well must have; null: unknown.
  Endings Train(const FaultyWorld& world, const History* expected) const {
    return RunWithFaults(world, [&](Communicator& comm) -> Outcome {
      absl::StatusOr<std::unique_ptr<Replica>> replica =
          Replica::Create(comm, training_.model, training_.strategy, training_.initial);
      if (!replica.ok()) return {replica.status(), ""};
      for (int step = 0; step < kSteps; ++step) {
        const Floats& gradient = training_.gradients[step][comm.rank()];
        if (absl::Status status = (*replica)->Step(gradient, training_.lr); !status.ok()) return {status, ""};
        if (expected != nullptr && (*replica)->weights() != (*expected)[step][comm.rank()]) {
          return {absl::OkStatus(), absl::StrCat("other weights after step ", step)};
        }
      }
      return {(*replica)->synchronizer().Flush(), ""};
    });
  }

  static FaultyWorld World(const Fault& fault, std::uint64_t seed = 1) {
    return {.size = kRanks, .plan = {.seed = seed, .faults = {fault}}};
  }

  Training training_;
};

TEST_P(FaultyStrategiesTest, NuisancesDoNoHarm) {
  History expected;
  if (!IsAsync()) expected = tutti::Train(training_);
  for (const std::string& transport : WorldTransports()) {
    FaultyWorld world = World({.kind = FaultKind::kDelay, .chance = 0.2, .delay = absl::Milliseconds(2)});
    world.transport = transport;
    world.plan.faults.push_back({.kind = FaultKind::kReorder, .chance = 0.2, .delay = absl::Milliseconds(2)});
    world.plan.faults.push_back({.kind = FaultKind::kDuplicate, .chance = 0.3});
    const Endings endings = Train(world, IsAsync() ? nullptr : &expected);
    ExpectNoHarm(endings);
    EXPECT_FALSE(endings.events.empty());
  }
}

TEST_P(FaultyStrategiesTest, TheDeadAreNamed) {
  int deaths = 0;
  const std::int64_t first = 2 * (kRanks - 1) * MessagesUntilMade(training_);  // counts sends and receives
  for (const std::int64_t number : {first, first + 2, first + 7, first + 15}) {
    const Rank victim = static_cast<Rank>(number % kRanks);
    const Endings endings =
        Train(World({.kind = FaultKind::kKill, .from = victim, .first = number, .last = number}), nullptr);
    ExpectDeathOf(victim, endings);
    deaths += endings.events.empty() ? 0 : 1;
  }
  EXPECT_GT(deaths, 0);
}

TEST_P(FaultyStrategiesTest, ALostMessageEndsInTime) {
  const std::int64_t first = MessagesUntilMade(training_);
  for (const std::int64_t number : {first, first + 3}) {
    FaultyWorld world = World({.kind = FaultKind::kHalfOpen, .from = 1, .to = 2, .first = number});
    world.timeout = kShortTimeout;
    ExpectLoss(world, Train(world, nullptr));
  }
}

TEST_P(FaultyStrategiesTest, ATruncatedMessageNamesBothLengths) {
  const std::int64_t first = MessagesUntilMade(training_);
  int truncations = 0;
  for (const std::uint64_t seed : {1, 2, 3, 4}) {
    const Endings endings = Train(World({.kind = FaultKind::kTruncate, .first = first, .chance = 0.2}, seed), nullptr);
    const bool all_ended_well = std::all_of(endings.ranks.begin(), endings.ranks.end(),
                                            [](const Outcome& outcome) { return outcome.status.ok(); });
    // The message may be one by which ranks of async agree to stop, after the last weights are final.
    if (IsAsync() && all_ended_well) continue;
    ExpectTruncation(endings);
    ++truncations;
  }
  EXPECT_GT(truncations, 0);
}

// A rank that waits at the store does not hear of deaths: its deadline ends the wait with an error that names all
// missing ranks, the dead one and those that heard of the death in time and left.
TEST_P(FaultyStrategiesTest, ARankThatDiesWhileAReplicaIsMadeIsNamed) {
  for (const std::int64_t number : {0, 1, 3, 6}) {
    FaultyWorld world = World({.kind = FaultKind::kKill, .from = 1, .first = number, .last = number});
    world.timeout = kShortTimeout;
    const Endings endings = Train(world, nullptr);
    EXPECT_LT(endings.took, absl::Seconds(20));
    if (endings.events.empty()) continue;
    for (const Rank rank : {0, 2}) {
      const absl::Status& status = endings.ranks[rank].status;
      const bool tells = absl::IsUnavailable(status) && absl::StrContains(status.message(), "rank 1 died");
      EXPECT_TRUE(status.ok() || tells || ListsAsMissing(1, status)) << "rank " << rank << ": " << status;
    }
  }
}

// Rank 0 waits for its peers in Flush, the peers make steps until a round of the background fails, and then leave. The
// error of rank 0 is that of the round: that its peers have left is a consequence.
TEST(FaultyAsyncTest, TheErrorOfARoundEndsARankThatWaitsInFlush) {
  const Training training = RandomTraining("async:sync_interval_ms=1", kRanks, 1);
  const Fault fault = {.kind = FaultKind::kTruncate, .from = 1, .to = 0, .first = MessagesUntilMade(training) + 3};
  const Endings endings = RunWithFaults({.size = kRanks, .plan = {.faults = {fault}}}, [&](Communicator& comm) {
    const auto replica = Replica::Create(comm, training.model, training.strategy, training.initial);
    if (!replica.ok()) return Outcome{replica.status(), ""};
    if (comm.rank() == 0) return Outcome{(*replica)->synchronizer().Flush(), ""};
    absl::Status status;
    while (status.ok()) status = (*replica)->Step(training.gradients[0][comm.rank()], training.lr);
    return Outcome{status, ""};
  });
  ExpectTruncation(endings);
  EXPECT_FALSE(endings.events.empty());
}

INSTANTIATE_TEST_SUITE_P(, FaultyStrategiesTest, testing::ValuesIn(Strategies()), NameOf);

}  // namespace
}  // namespace tutti
