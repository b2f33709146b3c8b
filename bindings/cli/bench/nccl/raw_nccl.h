// NCCL as a program calls it that has no Tutti, to be measured beside Tutti (`tutti bench --peer nccl`). This folder
// alone of the bindings sees NCCL's functions themselves: Tutti's native transport is part of what is measured.
#ifndef TUTTI_BINDINGS_CLI_BENCH_NCCL_RAW_NCCL_H_
#define TUTTI_BINDINGS_CLI_BENCH_NCCL_RAW_NCCL_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "tutti/communicator.h"
#include "tutti/native_transport.h"

namespace tutti {

struct CudaRuntime;
namespace nccl {
struct Library;
}

namespace cli {

// The tables of functions behind RawNccl, which live as long as the process.
struct NcclSoftware {
  const nccl::Library* nccl = nullptr;
  const CudaRuntime* cuda = nullptr;
};

// The tables of this process; otherwise the reason why there are none.
absl::StatusOr<NcclSoftware> NcclOfThisProcess();
// Lets NcclOfThisProcess return `software` from now on, for tests; null takes that back.
void SetNcclOfThisProcess(const NcclSoftware* software);

// OK, or Unimplemented that says why NCCL cannot perform the call with the results that Tutti promises.
absl::Status CheckRawNccl(Collective collective, DType dtype, ReduceOp op);

// One rank of a blocking communicator of NCCL, with a stream of its own. One thread at a time uses it.
class RawNccl {
 public:
  // Makes an NCCL communicator of the ranks of `communicator`, which has a GPU; all its ranks call Connect.
  // DeadlineExceeded when they have not come within `timeout`.
  static absl::StatusOr<std::unique_ptr<RawNccl>> Connect(const NcclSoftware& software, Communicator& communicator,
                                                          absl::Duration timeout);
  // Gives up what has not ended, for which NCCL has two seconds.
  ~RawNccl();
  RawNccl(const RawNccl&) = delete;
  RawNccl& operator=(const RawNccl&) = delete;

  // Puts `calls`, which CheckRawNccl has passed, on the stream, as one group where they are several. May wait for peers
  // when NCCL connects to them, at the first calls.
  absl::Status Enqueue(absl::Span<const NativeCall> calls);
  // Waits until the stream has ended. DeadlineExceeded when it has not within `timeout`.
  absl::Status Wait(absl::Duration timeout);

 private:
  class Impl;
  explicit RawNccl(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace cli
}  // namespace tutti

#endif  // TUTTI_BINDINGS_CLI_BENCH_NCCL_RAW_NCCL_H_
