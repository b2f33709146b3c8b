// The capture of a real stream into a CUDA graph, which Tutti's table of CUDA has no functions for.
#ifndef TESTS_GPU_CAPTURE_H_
#define TESTS_GPU_CAPTURE_H_

#include <cuda_runtime.h>

#include "memory/cuda_runtime.h"

namespace tutti::gpu {

// In the mode that forbids most, and that PyTorch uses: no thread may query or allocate meanwhile, unless it says that
// this has nothing to do with the capture.
inline CudaError BeginCapture(CUstream_st* stream) {
  return cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
}

inline CudaError EndCapture(CUstream_st* stream, void** graph) {
  cudaGraph_t captured = nullptr;
  cudaError_t error = cudaStreamEndCapture(stream, &captured);
  cudaGraphExec_t executable = nullptr;
  if (error == cudaSuccess) error = cudaGraphInstantiate(&executable, captured, 0);
  if (captured != nullptr) cudaGraphDestroy(captured);
  *graph = executable;
  return error;
}

inline CudaError LaunchGraph(void* graph, CUstream_st* stream) {
  return cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), stream);
}

inline void DestroyGraph(void* graph) { cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph)); }

}  // namespace tutti::gpu

#endif  // TESTS_GPU_CAPTURE_H_
