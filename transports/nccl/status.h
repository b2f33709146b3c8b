// NCCL's results as statuses.
#ifndef TUTTI_TRANSPORTS_NCCL_STATUS_H_
#define TUTTI_TRANSPORTS_NCCL_STATUS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "transports/nccl/library.h"
#include "tutti/dtype.h"

namespace tutti::nccl {

// The error `result` of what `rank` did, with NCCL's words: Unavailable for errors of peers and of the system (network,
// memory files), InvalidArgument for arguments that NCCL refuses, FailedPrecondition for calls that come at the wrong
// time or ranks that do not fit together, Internal for errors of CUDA and of NCCL itself.
absl::Status StatusOf(const Library& nccl, Result result, Rank rank, absl::string_view what);

// DeadlineExceeded for what `rank` has waited for since `start_ns` of MonotonicNanos.
absl::Status Late(Rank rank, absl::string_view what, std::int64_t start_ns);

// Waits until nothing is under way in `comm` any more. DeadlineExceeded at `end_ns` of MonotonicNanos, and the error
// that NCCL has found in the communicator.
absl::Status AwaitReady(const Library& nccl, Comm comm, Rank rank, absl::string_view what, std::int64_t end_ns);

}  // namespace tutti::nccl

#endif  // TUTTI_TRANSPORTS_NCCL_STATUS_H_
