// The end of a communicator that waits for nobody.
#ifndef TUTTI_TRANSPORTS_NCCL_ABORT_H_
#define TUTTI_TRANSPORTS_NCCL_ABORT_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "memory/cuda_runtime.h"
#include "transports/nccl/bounded.h"
#include "transports/nccl/library.h"
#include "tutti/dtype.h"

namespace tutti::nccl {

// How long giving up takes at most, where the caller has given no time.
inline constexpr absl::Duration kAbortTime = absl::Seconds(2);

// A communicator, and who uses it.
struct Abortable {
  Comm comm = nullptr;
  int device = 0;
  Rank rank = 0;
  std::shared_ptr<CallApart> inside = {};  // a call of NCCL with `comm` that may not have returned; null: there is none
  std::shared_ptr<void> written = {};      // memory that NCCL may write until the end
};

// Ends what was enqueued in the communicator, and `inside`, and frees it. DeadlineExceeded at `end_ns` of
// MonotonicNanos, when NCCL has not returned: a thread is left behind in it. ResourceExhausted where the system starts
// no thread: the communicator, and the memory that NCCL may write, are kept for good then.
absl::Status Abort(const Library& nccl, const CudaRuntime& cuda, Abortable communicator, std::int64_t end_ns);

}  // namespace tutti::nccl

#endif  // TUTTI_TRANSPORTS_NCCL_ABORT_H_
