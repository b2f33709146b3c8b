// Memory and time of a GPU, as far as the programs of tests/gpu need them. Every error ends the program.
#ifndef TESTS_GPU_DEVICE_MEMORY_H_
#define TESTS_GPU_DEVICE_MEMORY_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace tutti::gpu {

inline void Check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t bytes) {
    void* memory = nullptr;
    Check(cudaMalloc(&memory, bytes), "cudaMalloc");
    memory_ = static_cast<std::uint8_t*>(memory);
  }
  ~DeviceMemory() { cudaFree(memory_); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  std::uint8_t* data() const { return memory_; }
  float* floats() const { return reinterpret_cast<float*>(memory_); }

 private:
  std::uint8_t* memory_ = nullptr;
};

// The time from Start to Stop on a stream.
class StreamTimer {
 public:
  explicit StreamTimer(cudaStream_t stream) : stream_(stream) {
    Check(cudaEventCreate(&start_), "cudaEventCreate");
    Check(cudaEventCreate(&stop_), "cudaEventCreate");
  }
  ~StreamTimer() {
    cudaEventDestroy(start_);
    cudaEventDestroy(stop_);
  }
  StreamTimer(const StreamTimer&) = delete;
  StreamTimer& operator=(const StreamTimer&) = delete;

  void Start() { Check(cudaEventRecord(start_, stream_), "cudaEventRecord"); }
  double StopSeconds() {
    Check(cudaEventRecord(stop_, stream_), "cudaEventRecord");
    Check(cudaEventSynchronize(stop_), "cudaEventSynchronize");
    float milliseconds = 0;
    Check(cudaEventElapsedTime(&milliseconds, start_, stop_), "cudaEventElapsedTime");
    return static_cast<double>(milliseconds) * 1e-3;
  }

 private:
  cudaStream_t stream_;
  cudaEvent_t start_ = nullptr;
  cudaEvent_t stop_ = nullptr;
};

}  // namespace tutti::gpu

#endif  // TESTS_GPU_DEVICE_MEMORY_H_
