// Memory and streams of a rank's GPU, by the table of CUDA that the rank was given. Every error ends the program: a
// check that goes on after an error of CUDA says nothing.
#ifndef TESTS_GPU_RANK_MEMORY_H_
#define TESTS_GPU_RANK_MEMORY_H_

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "memory/cuda_runtime.h"
#include "tests/gpu/rank_check.h"

namespace tutti::gpu {

inline void Require(const CudaRuntime& cuda, CudaError error, const char* what) {
  if (error == kCudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cuda.error_text(error));
  _exit(1);
}

class RankStream {
 public:
  explicit RankStream(const RankDevice& device) : cuda_(*device.cuda) {
    Require(cuda_, cuda_.set_device(device.index), "set_device");
    Require(cuda_, cuda_.create_stream(&stream_), "create_stream");
  }
  ~RankStream() { cuda_.destroy_stream(stream_); }
  RankStream(const RankStream&) = delete;
  RankStream& operator=(const RankStream&) = delete;

  CUstream_st* get() const { return stream_; }
  void Synchronize() const { Require(cuda_, cuda_.synchronize_stream(stream_), "synchronize_stream"); }

 private:
  const CudaRuntime& cuda_;
  CUstream_st* stream_ = nullptr;
};

class RankMemory {
 public:
  RankMemory(const RankDevice& device, std::int64_t bytes)
      : cuda_(*device.cuda), stream_(device), bytes_(static_cast<std::size_t>(bytes)) {
    Require(cuda_, cuda_.allocate(&data_, bytes_ > 0 ? bytes_ : 1), "allocate");
  }
  ~RankMemory() { cuda_.free(data_); }
  RankMemory(const RankMemory&) = delete;
  RankMemory& operator=(const RankMemory&) = delete;

  std::byte* data() const { return static_cast<std::byte*>(data_); }

  // Both wait until the bytes are there.
  void Write(const std::vector<std::byte>& bytes) const {
    if (bytes.empty()) return;
    Require(cuda_, cuda_.copy_async(data_, bytes.data(), bytes.size(), stream_.get()), "copy to the GPU");
    stream_.Synchronize();
  }
  std::vector<std::byte> Read() const {
    std::vector<std::byte> bytes(bytes_);
    if (bytes.empty()) return bytes;
    Require(cuda_, cuda_.copy_async(bytes.data(), data_, bytes_, stream_.get()), "copy from the GPU");
    stream_.Synchronize();
    return bytes;
  }

 private:
  const CudaRuntime& cuda_;
  RankStream stream_;
  std::size_t bytes_;
  void* data_ = nullptr;
};

}  // namespace tutti::gpu

#endif  // TESTS_GPU_RANK_MEMORY_H_
