// Groups of ranks with GPUs.
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/gpu/expected_on_gpu.h"
#include "tests/gpu/rank_check.h"

namespace tutti::gpu {
namespace {

absl::Status CheckGroup(CheckedRank& rank, const absl::StatusOr<std::unique_ptr<Communicator>>& made) {
  if (!made.ok()) return made.status();
  CheckedRank member = {.comm = **made, .device = rank.device, .die = rank.die, .note = rank.note};
  for (const Collective collective : {Collective::kAllReduce, Collective::kAllGather, Collective::kAllToAll}) {
    if (absl::Status status = CheckCall(member, nullptr, {.collective = collective}, 1001); !status.ok()) return status;
  }
  const Schedule* const ring = *FindSchedule(Collective::kAllReduce, "ring");
  return CheckCall(member, ring, {.collective = Collective::kAllReduce}, 1001);
}

// Groups by Split and by Group, in other orders of ranks, beside a world that goes on.
absl::Status SplitAndGroup(CheckedRank& rank) {
  const CollectiveSpec all_reduce = {.collective = Collective::kAllReduce};
  if (absl::Status status = CheckCall(rank, nullptr, all_reduce, 100); !status.ok()) return status;
  if (absl::Status status = CheckGroup(rank, rank.comm.Split(0, -rank.rank())); !status.ok()) return status;
  if (absl::Status status = CheckGroup(rank, rank.comm.Split(rank.rank() % 2, 0)); !status.ok()) return status;
  if (rank.rank() < 2) {
    if (absl::Status status = CheckGroup(rank, rank.comm.Group({1, 0}, "two")); !status.ok()) return status;
  }
  return CheckCall(rank, nullptr, all_reduce, 100);
}

}  // namespace

std::vector<RankCheck> GroupChecks() {
  return {{.name = "groups",
           .summary = "Split and Group, each with an NCCL communicator of its own",
           .sizes = {2, 3},
           .timeout = absl::Seconds(90),
           .run = SplitAndGroup}};
}

}  // namespace tutti::gpu
