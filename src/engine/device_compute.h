// The steps that compute on a GPU: which kernels carry out the steps of a launch.
#ifndef TUTTI_ENGINE_DEVICE_COMPUTE_H_
#define TUTTI_ENGINE_DEVICE_COMPUTE_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/stream_device.h"
#include "kernels/device_kernels.h"

namespace tutti {

// Enqueues the steps by functions of `table`: see StreamDevice::compute. Encoded messages are one launch together, and
// so are decoded ones.
absl::Status ComputeOnDevice(const kernels::DeviceKernels& table, absl::Span<const DeviceStep> steps,
                             CUstream_st* stream);
// Enqueues the steps of a Recode as one launch.
absl::Status RecodeOnDevice(const kernels::DeviceKernels& table, absl::Span<const DeviceStep> steps,
                            CUstream_st* stream);
// An error where the build has no code for the current device: any kernel tells, before peers wait for this rank.
absl::Status LoadOneKernel(const kernels::DeviceKernels& table);
// The CUDA kernels of this build, and both functions by them; Unimplemented in a build without CUDA.
const absl::StatusOr<const kernels::DeviceKernels*>& TableOfCuda();
absl::Status ComputeByCuda(absl::Span<const DeviceStep> steps, CUstream_st* stream);
absl::Status RecodeByCuda(absl::Span<const DeviceStep> steps, CUstream_st* stream);

}  // namespace tutti

#endif  // TUTTI_ENGINE_DEVICE_COMPUTE_H_
