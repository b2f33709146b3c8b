// The capture of a real stream into a CUDA graph, which Tutti's table of CUDA has no functions for.
#ifndef TESTS_GPU_CAPTURE_H_
#define TESTS_GPU_CAPTURE_H_

#include <cuda_runtime.h>

#include "memory/cuda_runtime.h"

namespace tutti::gpu {

// "Relaxed": other calls of CUDA by this process go on as usual.
inline CudaError BeginCapture(CUstream_st* stream) {
  return cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed);
}

inline CudaError EndCapture(CUstream_st* stream) {
  cudaGraph_t graph = nullptr;
  const cudaError_t error = cudaStreamEndCapture(stream, &graph);
  if (graph != nullptr) cudaGraphDestroy(graph);
  return error;
}

}  // namespace tutti::gpu

#endif  // TESTS_GPU_CAPTURE_H_
