#include "sync/loss_scale.h"

#include <cstddef>
#include <vector>

#include "absl/strings/str_cat.h"

namespace tutti {

absl::Status CheckLossScale(Rank rank, double scale) {
  if (IsLossScale(scale)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("loss scale of rank ", rank, " is ", scale, ", must be a finite number above 0"));
}

absl::Status AgreeOnLossScale(Communicator& communicator, double scale, const CallOptions& call) {
  std::vector<double> scales(static_cast<std::size_t>(communicator.size()));
  CallOptions driven = call;
  driven.caller_drives = true;
  Work gather = communicator.AllGather(&scale, scales.data(), 1, DType::kF64, driven);
  if (absl::Status status = gather.Wait(); !status.ok()) return status;
  for (std::size_t rank = 0; rank < scales.size(); ++rank) {
    if (absl::Status valid = CheckLossScale(static_cast<Rank>(rank), scales[rank]); !valid.ok()) return valid;
    if (scales[rank] != scales[0]) {
      return absl::InvalidArgumentError(absl::StrCat("loss scale of rank ", rank, " is ", scales[rank],
                                                     ", that of rank 0 is ", scales[0],
                                                     "; the loss scale must be equal on all ranks"));
    }
  }
  return absl::OkStatus();
}

}  // namespace tutti
