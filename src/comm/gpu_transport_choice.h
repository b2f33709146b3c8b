// How the calls of a world on the memory of its GPUs travel: by NCCL, or staged through the host.
#ifndef TUTTI_COMM_GPU_TRANSPORT_CHOICE_H_
#define TUTTI_COMM_GPU_TRANSPORT_CHOICE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "memory/cuda_runtime.h"
#include "tutti/store.h"

namespace tutti {

// What a rank says of itself.
struct GpuOfRank {
  std::string uuid;               // as CudaRuntime::device_uuid gives it, in hexadecimal digits
  std::string without_nccl = {};  // why there is no NCCL; empty: there is
};

struct GpuTransportChoice {
  bool staged = false;
  std::string reason;  // "ranks 0 and 1 have one GPU"
};

// InvalidArgument unless `wanted` is auto, nccl or staged.
absl::Status CheckGpuTransport(absl::string_view wanted);

// The choice for ranks with these GPUs, in rank order. FailedPrecondition names a rank that has no NCCL where NCCL is
// wanted; whether several ranks may have one GPU is then left to NCCL.
absl::StatusOr<GpuTransportChoice> ChooseGpuTransport(absl::string_view wanted, absl::Span<const GpuOfRank> gpus);

// Tells the other ranks of the world of this rank's GPU, and chooses as they do. `without_nccl`: OK where this rank has
// NCCL. `end_ns` of MonotonicNanos.
absl::StatusOr<GpuTransportChoice> AgreeOnGpuTransport(Store& store, Rank rank, int size, absl::string_view wanted,
                                                       const CudaRuntime& cuda, int device,
                                                       const absl::Status& without_nccl, std::int64_t end_ns);

}  // namespace tutti

#endif  // TUTTI_COMM_GPU_TRANSPORT_CHOICE_H_
