#include "transports/nccl/abort.h"

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/mutex.h"

namespace tutti::nccl {
namespace {

// ncclCommAbort tells everything in the communicator to end, and frees the communicator: at once, or, in a group, at
// the end of the group. So the communicator is freed when the other thread has left it.
void AbortAfter(const Library& nccl, Comm comm, CallApart& inside) {
  nccl.group_start();
  nccl.comm_abort(comm);
  inside.ReturnsBy(kNeverNanos);
  nccl.group_end();
}

}  // namespace

// ncclCommAbort may wait for the device, so it is called where nobody waits for it without an end.
absl::Status Abort(const Library& nccl, const CudaRuntime& cuda, Abortable communicator, std::int64_t end_ns) {
  const std::int64_t start_ns = MonotonicNanos();
  const Rank rank = communicator.rank;
  const std::shared_ptr<void> written = communicator.written;
  const absl::StatusOr<bool> returned = ReturnsBy(end_ns, [&nccl, &cuda, communicator = std::move(communicator)] {
    cuda.set_device(communicator.device);
    const CudaOutsideCapture outside(cuda);  // another thread may be recording a graph
    if (communicator.inside != nullptr && !communicator.inside->has_returned()) {
      AbortAfter(nccl, communicator.comm, *communicator.inside);
    } else {
      nccl.comm_abort(communicator.comm);
    }
  });
  if (!returned.ok()) {
    static auto* const kept = new std::vector<std::shared_ptr<void>>;
    static Mutex mutex;
    const MutexLock lock(mutex);
    kept->push_back(written);
    return absl::Status(returned.status().code(),
                        absl::StrCat("rank ", rank, " has not aborted its NCCL communicator: ",
                                     returned.status().message(), "; what was enqueued may never end"));
  }
  if (*returned) return absl::OkStatus();
  return absl::DeadlineExceededError(
      absl::StrCat("rank ", rank, ": NCCL has not aborted its communicator within ",
                   absl::FormatDuration(absl::Nanoseconds(MonotonicNanos() - start_ns)),
                   "; a thread is left behind in it, and what was enqueued may never end"));
}

}  // namespace tutti::nccl
