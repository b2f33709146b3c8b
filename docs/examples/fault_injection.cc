// What a program hears when a rank dies in the middle of its work: a fault plan kills one of three ranks, which are
// threads of this process.
#include <cstdio>
#include <memory>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "tutti/communicator.h"
#include "tutti/faulty_transport.h"
#include "tutti/store.h"

namespace {

constexpr int kRanks = 3;

// [rank]
absl::Status SumUntilDone(tutti::Rank rank, const std::shared_ptr<tutti::InprocHub>& hub,
                          const std::shared_ptr<tutti::Store>& store, const tutti::FaultPlan& plan) {
  absl::StatusOr<std::unique_ptr<tutti::Transport>> inner = tutti::MakeInprocTransport(hub, {});  // or MakeUcxTransport
  if (!inner.ok()) return inner.status();
  absl::StatusOr<std::unique_ptr<tutti::Transport>> faulty = tutti::MakeFaultyTransport(*std::move(inner), plan);
  if (!faulty.ok()) return faulty.status();
  tutti::Bootstrap job = {.identity = {.rank = rank, .size = kRanks}, .store = store};
  const absl::StatusOr<std::unique_ptr<tutti::Communicator>> world = tutti::Communicator::Create(
      job, *std::move(faulty),
      {.timeout = absl::Seconds(10), .mapping = tutti::CommunicatorOptions::Mapping::kNever});  // messages only
  if (!world.ok()) return world.status();
  for (int step = 0; step < 1000; ++step) {  // the program that is to be tested
    float number = 1;
    tutti::Work sum = (*world)->AllReduce(&number, &number, 1, tutti::DType::kF32, tutti::ReduceOp::kSum);
    if (absl::Status status = sum.Wait(); !status.ok()) return status;
    if (number != kRanks) return absl::InternalError("a wrong sum that claims to be right");
  }
  return absl::OkStatus();
}
// [rank]

}  // namespace

int main() {
  // [plan]
  tutti::FaultPlan plan;
  plan.seed = 7;
  plan.faults = {
      // One message in ten is late by up to a millisecond, which must change no result.
      {.kind = tutti::FaultKind::kDelay, .chance = 0.1, .delay = absl::Milliseconds(1)},
      // Rank 1 dies instead of posting its message 40.
      {.kind = tutti::FaultKind::kKill, .from = 1, .first = 40, .last = 40},
  };
  // [plan]
  const std::shared_ptr<tutti::InprocHub> hub = tutti::MakeInprocHub(kRanks);
  const std::shared_ptr<tutti::Store> store = tutti::MakeMemoryStore();
  std::vector<absl::Status> ends(kRanks);
  std::vector<std::thread> ranks;
  for (tutti::Rank rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank] { ends[rank] = SumUntilDone(rank, hub, store, plan); });
  }
  for (std::thread& rank : ranks) rank.join();
  bool all_name_it = true;
  for (tutti::Rank rank = 0; rank < kRanks; ++rank) {
    std::printf("rank %d: %s\n", rank, ends[rank].ToString().c_str());
    all_name_it &= absl::IsUnavailable(ends[rank]) && absl::StrContains(ends[rank].message(), "rank 1 died");
  }
  return all_name_it ? 0 : 1;
}
