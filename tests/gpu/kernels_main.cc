// Checks the kernels of this machine's GPU against the same functions run in host memory, and measures them.
//
//   gpu_kernels [check] [speed]      (default: both)
//   gpu_kernels check small          without long messages: for tools that make kernels slow, such as compute-sanitizer
//
// Exits with 77, which ctest shows as skipped, where there is no GPU; with 1 when a kernel gives wrong bits.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>

#include "kernels/device_kernels.h"
#include "tests/gpu/device_memory.h"
#include "tests/gpu/kernel_check.h"
#include "tests/gpu/kernel_speed.h"

int main(int argc, char** argv) {
  constexpr int kSkipped = 77;
  int devices = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&devices); error != cudaSuccess || devices == 0) {
    std::printf("no GPU: %s\n", error == cudaSuccess ? "the driver knows none" : cudaGetErrorString(error));
    return kSkipped;
  }
  cudaDeviceProp properties;
  tutti::gpu::Check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  std::printf("%s, %d multiprocessors, sm_%d%d\n", properties.name, properties.multiProcessorCount, properties.major,
              properties.minor);
  const auto asked = [argc, argv](const char* what) {
    bool found = argc == 1;
    for (int i = 1; i < argc; ++i) found = found || std::strcmp(argv[i], what) == 0;
    return found;
  };
  const absl::StatusOr<const tutti::kernels::DeviceKernels*> kernels = tutti::kernels::CudaKernels();
  if (!kernels.ok()) {
    std::printf("no kernels: %s\n", kernels.status().ToString().c_str());
    return 1;
  }
  cudaStream_t stream = nullptr;
  tutti::gpu::Check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  int failures = 0;
  const bool small = argc > 1 && asked("small");
  if (asked("check")) failures = tutti::gpu::CheckKernels(**kernels, stream, !small);
  if (asked("speed")) {
    for (const std::int64_t megabytes : {4, 100, 1024}) tutti::gpu::MeasureKernels(**kernels, stream, megabytes << 18);
  }
  std::printf("%d failed\n", failures);
  return failures == 0 ? 0 : 1;
}
