// Compares the kernels of a GPU with the same functions run in host memory.
#ifndef TESTS_GPU_KERNEL_CHECK_H_
#define TESTS_GPU_KERNEL_CHECK_H_

#include <cuda_runtime.h>

#include "kernels/device_kernels.h"

namespace tutti::gpu {

// Runs all cases of tests/kernels and tests/codecs, prints what they were and what differed, and returns how many
// failed. `large`: with messages of many blocks.
int CheckKernels(const kernels::DeviceKernels& on_gpu, cudaStream_t stream, bool large);

}  // namespace tutti::gpu

#endif  // TESTS_GPU_KERNEL_CHECK_H_
