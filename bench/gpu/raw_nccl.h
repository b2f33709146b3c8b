// NCCL as a program calls it without Tutti, through the table of functions that Tutti has loaded.
#ifndef BENCH_GPU_RAW_NCCL_H_
#define BENCH_GPU_RAW_NCCL_H_

#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/gpu/rank_check.h"
#include "transports/nccl/library.h"

namespace tutti::gpu {

class RawNccl {
 public:
  // A communicator of all ranks of `rank`'s, which all call Connect. Blocking, as programs make it.
  static absl::StatusOr<RawNccl> Connect(CheckedRank& rank);
  ~RawNccl();
  RawNccl(RawNccl&& other) noexcept : nccl_(other.nccl_), comm_(std::exchange(other.comm_, nullptr)) {}
  RawNccl& operator=(RawNccl&&) = delete;

  // Enqueues a sum of `count` f32 in place.
  absl::Status AllReduce(void* data, std::int64_t count, CUstream_st* stream);
  // Waits until the last call is on its stream.
  absl::Status Settle();

 private:
  explicit RawNccl(const nccl::Library& nccl) : nccl_(&nccl) {}
  absl::Status StatusOf(nccl::Result result, const char* what) const;

  const nccl::Library* nccl_;
  nccl::Comm comm_ = nullptr;
};

}  // namespace tutti::gpu

#endif  // BENCH_GPU_RAW_NCCL_H_
