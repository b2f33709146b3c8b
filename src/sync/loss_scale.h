// The factor by which the losses of a training are multiplied, and with them its gradients and residuals.
#ifndef TUTTI_SYNC_LOSS_SCALE_H_
#define TUTTI_SYNC_LOSS_SCALE_H_

#include <cmath>

#include "absl/status/status.h"
#include "tutti/communicator.h"

namespace tutti {

// Whether losses may be multiplied by `scale`.
inline bool IsLossScale(double scale) { return scale > 0 && std::isfinite(scale); }

// InvalidArgument when `scale` is no loss scale.
absl::Status CheckLossScale(double scale);

// OK when all ranks give one loss scale; InvalidArgument, on every rank, names the rank whose scale differs or is none.
// `mistake`: see Agree. `call` holds the options of the call that compares. Collective.
absl::Status AgreeOnLossScale(Communicator& communicator, double scale, absl::Status mistake, const CallOptions& call);

}  // namespace tutti

#endif  // TUTTI_SYNC_LOSS_SCALE_H_
