// GPUs for torch over host memory, for tests: a program that links fake_gpu.cc and fake_gpu_operators.cc, and of torch
// the libraries for the CPU alone (not libtorch_cuda), has the eight devices of the fake CUDA
// (tests/harness/fake_cuda.h).
//
// - Operators are carried out by torch's kernels for the CPU on the same memory. Those that only write tensors whose
//   sizes are known (in place, into an output, copies on a device) are enqueued on the current stream. All others first
//   wait for the current stream, and for no other one. So a wait that is missing between two streams shows as a wrong
//   result.
// - Memory that is freed is overwritten with 0xDD in the order of the stream on which the memory was allocated, and
//   after what other streams had enqueued at that time, if those were told to torch (Tensor::record_stream).
#ifndef TUTTI_TESTS_TORCH_FAKE_GPU_H_
#define TUTTI_TESTS_TORCH_FAKE_GPU_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <condition_variable>
#include <memory>
#include <mutex>

struct CUstream_st;  // NOLINT(readability-identifier-naming)

namespace tutti {

inline at::Device Gpu(int index) { return {at::kCUDA, static_cast<at::DeviceIndex>(index)}; }

// The current stream of this thread on a device, its handle, and another stream of the device.
c10::Stream CurrentStream(int device);
CUstream_st* HandleOf(const c10::Stream& stream);
c10::Stream AnotherStream(int device);

// While it lives, operators that are enqueued on `device` take longer than those on others: a rank that does not wait
// for the rank of this device, or for its own operators, finds other values.
class SlowGpu {
 public:
  explicit SlowGpu(int device);
  ~SlowGpu();
  SlowGpu(const SlowGpu&) = delete;
  SlowGpu& operator=(const SlowGpu&) = delete;
};

// Holds back what is enqueued on the current stream of `device` after the gate, until Open. The destructor opens it.
class StreamGate {
 public:
  explicit StreamGate(int device);
  ~StreamGate() { Open(); }
  StreamGate(const StreamGate&) = delete;
  StreamGate& operator=(const StreamGate&) = delete;
  void Open();

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    bool open = false;
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

// Lets the operators of a build of torch for CUDA, too, be carried out on the fake GPUs.
void ReplaceOperatorsOfCuda();

}  // namespace tutti

#endif  // TUTTI_TESTS_TORCH_FAKE_GPU_H_
