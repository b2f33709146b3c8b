// Measures the kernels of a GPU beside a copy in its memory.
#ifndef TESTS_GPU_KERNEL_SPEED_H_
#define TESTS_GPU_KERNEL_SPEED_H_

#include <cuda_runtime.h>

#include "kernels/device_kernels.h"

namespace tutti::gpu {

// Prints a line for each kernel: the bytes that it must read and write at least, divided by its time, and that rate as
// a share of what the GPU's own copy reaches. `count` elements of f32 are 4 · count bytes; `count` is a multiple of 64.
void MeasureKernels(const kernels::DeviceKernels& on_gpu, cudaStream_t stream, std::int64_t count);

}  // namespace tutti::gpu

#endif  // TESTS_GPU_KERNEL_SPEED_H_
