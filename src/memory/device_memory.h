// Memory of a GPU that buffers own.
#ifndef TUTTI_MEMORY_DEVICE_MEMORY_H_
#define TUTTI_MEMORY_DEVICE_MEMORY_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "memory/cuda_runtime.h"
#include "tutti/buffer.h"

namespace tutti {

// Allocates on device `device` of this process; `cuda` must live as long as the process. 0 bytes give a buffer without
// memory. InvalidArgument when `bytes` is negative; ResourceExhausted when the device has no room.
absl::StatusOr<Buffer> AllocateOnDevice(const CudaRuntime& cuda, int device, std::int64_t bytes);

}  // namespace tutti

#endif  // TUTTI_MEMORY_DEVICE_MEMORY_H_
