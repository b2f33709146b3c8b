// The arithmetic of plans on memory of a device: functions that enqueue one step on a stream and return at once.
//
// There are two tables of these functions. CudaKernels computes on GPUs. HostKernels computes at once, in host memory,
// by the same functions of octets and blocks, in one thread; tests compare it with the kernels and codecs of the CPU.
#ifndef TUTTI_KERNELS_DEVICE_KERNELS_H_
#define TUTTI_KERNELS_DEVICE_KERNELS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/adam.h"
#include "kernels/combine.h"
#include "kernels/message_jobs.h"
#include "tutti/dtype.h"

struct CUstream_st;  // what a cudaStream_t points to

namespace tutti::kernels {

using Stream = CUstream_st*;

// No stream: a function of CudaKernels that is given it launches nothing, but loads the kernel that it would launch.
// CUDA loads a kernel when it is first asked for, and may wait for all that runs on the device then (CUDA C++
// Programming Guide, "Lazy Loading"): also for a kernel that waits for another rank.
inline Stream LoadingStream() {
  static char place;
  return reinterpret_cast<Stream>(&place);
}

// Results have the bits that the functions of reduce.h, combine.h and adam.h and the codecs give on the CPU, but for a
// NaN that arithmetic makes: its bits differ between processors. All memory but the spans is memory of the device;
// messages and elements need only the alignment of their element, and are accessed fastest where they begin at
// multiples of 16 bytes. An error says that nothing was enqueued: InvalidArgument (more than kMaxOperands operands), or
// Internal or ResourceExhausted (the launch failed). Thread-safe, allocate nothing.
struct DeviceKernels {
  // reduce.h; complex, integer and bool dtypes too.
  absl::Status (*reduce)(Stream stream, DType dtype, ReduceOp op, std::int32_t divisor, absl::Span<void* const> dsts,
                         absl::Span<const void* const> srcs, std::int64_t count);
  absl::Status (*reduce_and_round)(Stream stream, DType dst_type, ReduceOp op, std::int32_t divisor,
                                   absl::Span<void* const> dsts, absl::Span<const void* const> srcs,
                                   std::int64_t count);
  absl::Status (*convert)(Stream stream, DType dst_type, void* dst, DType src_type, const void* src,
                          std::int64_t count);
  absl::Status (*divide)(Stream stream, DType dtype, void* dst, const void* src, std::int32_t divisor,
                         std::int64_t count);
  absl::Status (*multiply)(Stream stream, DType dtype, void* dst, const void* src, double factor, std::int64_t count);

  // combine.h; `coefficients`, in host memory, are read before the call returns.
  absl::Status (*combine)(Stream stream, DType dtype, void* dst, absl::Span<const void* const> srcs,
                          const Coefficient* coefficients, std::int64_t count, Results results);

  // message_jobs.h: several messages at a time, in one launch for every 64 messages that have one coder.
  absl::Status (*encode)(Stream stream, absl::Span<const EncodeJob> jobs);
  // A message that is refused is reported in `fault` (decode_fault.h), a word of memory that the device can write and
  // that holds 0 before; null: not reported. Nothing is written for a message with a wrong header.
  absl::Status (*decode)(Stream stream, absl::Span<const DecodeJob> jobs, std::uint32_t* fault);
  // The middle of the two-shot exchange: sum ← (the sum of all versions, in their order) / divisor, then
  // `encode.message` ← Q(sum), with `encode.residual` as in EncodeJob. The versions have the layout of `encode`;
  // `encode.values` is not read.
  absl::Status (*recode)(Stream stream, const EncodeJob& encode, float* sum,
                         absl::Span<const std::uint8_t* const> versions, std::int32_t divisor, std::uint32_t* fault);

  // adam.h.
  absl::Status (*blend_into_momentum)(Stream stream, DType dtype, void* gradient, const void* weights, const float* m,
                                      std::int64_t count, const AdamFactors& factors);
  absl::Status (*adam_step)(Stream stream, DType dtype, void* weights, const void* gradient, float* m, float* v,
                            std::int64_t count, const AdamFactors& factors);
  absl::Status (*frozen_adam_step)(Stream stream, DType dtype, void* weights, const void* momentum, float* m,
                                   const float* v, std::int64_t count, const AdamFactors& factors);
};

// The stream is not used: every call has computed its results when it returns.
const DeviceKernels& HostKernels();

// Unimplemented in a build without CUDA. The table can be had without a GPU; its functions then return Internal.
absl::StatusOr<const DeviceKernels*> CudaKernels();

}  // namespace tutti::kernels

#endif  // TUTTI_KERNELS_DEVICE_KERNELS_H_
