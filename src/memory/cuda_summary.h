// The devices that a CUDA runtime finds.
#ifndef TUTTI_MEMORY_CUDA_SUMMARY_H_
#define TUTTI_MEMORY_CUDA_SUMMARY_H_

#include "absl/status/statusor.h"
#include "memory/cuda_runtime.h"
#include "tutti/devices.h"

namespace tutti {

// Both ask `cuda`, which is usable, and return the error of the first question that is not answered.
absl::StatusOr<CudaSummary> Summarize(const CudaRuntime& cuda);
absl::StatusOr<DeviceSummary> SummarizeDevice(const CudaRuntime& cuda, int device);

}  // namespace tutti

#endif  // TUTTI_MEMORY_CUDA_SUMMARY_H_
