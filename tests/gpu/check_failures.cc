// Ranks that die, leave, or never come: the others end in time, with an error that names the rank.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/gpu/expected_on_gpu.h"
#include "tests/gpu/rank_check.h"
#include "tests/gpu/rank_memory.h"
#include "tutti/schedule.h"

namespace tutti::gpu {
namespace {

const CollectiveSpec kAllReduce = {.collective = Collective::kAllReduce};

absl::Status CheckNames(const absl::Status& status, Rank rank) {
  if (absl::StrContains(status.message(), absl::StrCat("rank ", rank))) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("the error does not name rank ", rank, ": ", status.ToString()));
}

// What the last rank does: it dies while its calls are on the stream or before it makes them, while the others may be
// in NCCL's first call of their kind, or it leaves after them. The others then work on without it.
enum class Loss : std::uint8_t { kDies, kDiesBefore, kLeaves };

absl::Status LosesTheLast(CheckedRank& rank, Loss loss) {
  const Rank last = rank.size() - 1;
  const std::int64_t count = rank.device.is_fake ? 10007 : 4 << 20;
  if (absl::Status status = CheckCall(rank, nullptr, kAllReduce, 1000); !status.ok()) return status;
  if (absl::Status status = rank.Meet(); !status.ok()) return status;
  if (rank.rank() == last && loss == Loss::kDiesBefore) return rank.die();
  auto values = std::make_unique<RankMemory>(rank.device, 4 * count);
  std::byte* const data = values->data();
  const auto by_messages = [&] { return rank.comm.AllReduce(data, data, count, DType::kF32, ReduceOp::kMax); };
  const auto by_nccl = [&] { return rank.comm.AllReduce(data, data, count, DType::kF32, ReduceOp::kSum); };
  std::vector<Work> works;
  for (int i = 0; i < 3; ++i) {
    works.push_back(by_messages());
    works.push_back(by_nccl());
  }
  if (rank.rank() == last) {
    if (loss == Loss::kDies) {
      values.release();  // a dead rank frees nothing: its calls are still on the stream
      return rank.die();
    }
    for (Work& work : works) {
      if (absl::Status status = work.Wait(); !status.ok()) return status;
    }
    return absl::OkStatus();
  }
  works.push_back(by_nccl());  // which the last rank never makes
  const absl::Time begin = absl::Now();
  absl::Status status;
  for (Work& work : works) status.Update(work.Wait());
  const absl::Duration took = absl::Now() - begin;
  if (!absl::IsUnavailable(status) && !absl::IsAborted(status)) {
    return absl::DataLossError(absl::StrCat("a call without rank ", last, " ended with ", status.ToString()));
  }
  if (absl::Status named = CheckNames(status, last); !named.ok()) return named;
  if (took > absl::Seconds(30)) return absl::DataLossError(absl::StrCat("that took ", absl::FormatDuration(took)));
  rank.note(absl::StrCat("after ", absl::FormatDuration(took), ": ", status.message()));
  std::vector<Rank> survivors;
  for (Rank survivor = 0; survivor < last; ++survivor) survivors.push_back(survivor);
  const absl::StatusOr<std::unique_ptr<Communicator>> made = rank.comm.Group(survivors, "survivors");
  if (!made.ok()) return absl::Status(made.status().code(), absl::StrCat("survivors: ", made.status().message()));
  CheckedRank survivor = {.comm = **made, .device = rank.device, .die = rank.die, .note = rank.note};
  return CheckCall(survivor, nullptr, kAllReduce, 1000);
}

// The last rank never makes a call that the others wait for.
absl::Status NeverComes(CheckedRank& rank) {
  const Rank last = rank.size() - 1;
  if (absl::Status status = CheckCall(rank, nullptr, kAllReduce, 1000); !status.ok()) return status;
  if (absl::Status status = rank.Meet(); !status.ok()) return status;
  const absl::Time end = absl::Now() + kPatience;
  if (rank.rank() == last) {
    if (absl::StatusOr<std::string> told = rank.comm.store().Get("the others have ended", end); !told.ok()) {
      return told.status();
    }
    return absl::OkStatus();
  }
  const RankMemory values(rank.device, 4000);
  const absl::Time begin = absl::Now();
  const absl::Status status =
      rank.comm
          .AllReduce(values.data(), values.data(), 1000, DType::kF32, ReduceOp::kSum, {.timeout = absl::Seconds(2)})
          .Wait();
  const absl::Duration took = absl::Now() - begin;
  if (absl::Status told = rank.comm.store().Set("the others have ended", "yes", end); !told.ok()) return told;
  if (!absl::IsDeadlineExceeded(status)) {
    return absl::DataLossError(absl::StrCat("a call without rank ", last, " ended with ", status.ToString()));
  }
  if (absl::Status named = CheckNames(status, last); !named.ok()) return named;
  rank.note(absl::StrCat("after ", absl::FormatDuration(took), ": ", status.message()));
  if (took < absl::Seconds(12)) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("a deadline of 2 s took ", absl::FormatDuration(took)));
}

}  // namespace

std::vector<RankCheck> FailureChecks() {
  return {{.name = "killed",
           .summary = "a rank dies while its calls are on the stream; the others name it, and go on as a group",
           .sizes = {2, 3},
           .timeout = absl::Seconds(90),
           .last_rank_dies = true,
           .also_staged = true,
           .run = [](CheckedRank& rank) { return LosesTheLast(rank, Loss::kDies); }},
          {.name = "killed_before",
           .summary = "a rank dies while others wait for it in the first call of a kind; they name it, and go on",
           .sizes = {2, 3},
           .timeout = absl::Seconds(90),
           .last_rank_dies = true,
           .run = [](CheckedRank& rank) { return LosesTheLast(rank, Loss::kDiesBefore); }},
          {.name = "left",
           .summary = "a rank leaves; the others name it, and go on as a group",
           .sizes = {2, 3},
           .timeout = absl::Seconds(90),
           .run = [](CheckedRank& rank) { return LosesTheLast(rank, Loss::kLeaves); }},
          {.name = "absent",
           .summary = "a rank never makes a call; the others end at their deadline",
           .sizes = {2, 3},
           .timeout = absl::Seconds(90),
           .run = NeverComes}};
}

}  // namespace tutti::gpu
