// The devices that a CUDA runtime finds.
#ifndef TUTTI_MEMORY_CUDA_SUMMARY_H_
#define TUTTI_MEMORY_CUDA_SUMMARY_H_

#include "absl/status/statusor.h"
#include "memory/cuda_runtime.h"
#include "tutti/devices.h"

namespace tutti {

// Asks `cuda`, which is usable. The error of the first question that is not answered.
absl::StatusOr<CudaSummary> Summarize(const CudaRuntime& cuda);

}  // namespace tutti

#endif  // TUTTI_MEMORY_CUDA_SUMMARY_H_
