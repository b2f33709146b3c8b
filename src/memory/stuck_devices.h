// GPUs with work that was given up and may never end. To free memory there would be to wait for that work.
#ifndef TUTTI_MEMORY_STUCK_DEVICES_H_
#define TUTTI_MEMORY_STUCK_DEVICES_H_

#include "memory/cuda_runtime.h"

namespace tutti {

// Whether what was enqueued on `stream`, of device `device`, has ended, or nothing of this process runs on the device
// any more. Other errors of CUDA say nothing of the work: false.
bool HasEnded(const CudaRuntime& cuda, int device, CUstream_st* stream);

// Gives up the work on `stream`, of device `device`, and says so on stderr. The stream must live as long as the
// process: whether its work has ended after all is asked again and again.
void GiveUpStream(int device, CUstream_st* stream);

// Whether work that was given up is still on the device: memory of the device, and pinned memory that the device uses,
// must then be left behind. Any thread.
bool IsStuck(const CudaRuntime& cuda, int device);

}  // namespace tutti

#endif  // TUTTI_MEMORY_STUCK_DEVICES_H_
