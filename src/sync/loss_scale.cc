#include "sync/loss_scale.h"

#include "absl/strings/str_cat.h"
#include "base/exactly.h"
#include "tutti/agreement.h"

namespace tutti {

absl::Status CheckLossScale(double scale) {
  if (IsLossScale(scale)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("loss scale ", scale, " must be a finite number above 0"));
}

absl::Status AgreeOnLossScale(Communicator& communicator, double scale, absl::Status mistake, const CallOptions& call) {
  mistake.Update(CheckLossScale(scale));
  return Agree(communicator, "loss scale", {{"loss scale", Exactly(scale)}}, mistake, call);
}

}  // namespace tutti
