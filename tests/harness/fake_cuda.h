// The CUDA runtime over host memory, for tests of code that works on streams: the same table (memory/cuda_runtime.h),
// with streams as ordered queues that threads drain. Eight devices, one of which a rank of a test takes as its own.
#ifndef TUTTI_TESTS_HARNESS_FAKE_CUDA_H_
#define TUTTI_TESTS_HARNESS_FAKE_CUDA_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/strings/string_view.h"
#include "memory/cuda_runtime.h"
#include "tests/harness/fake_stream.h"

namespace tutti {

inline constexpr int kFakeDevices = 8;

// Calls of the whole process since it began. A test subtracts what was counted before.
struct FakeCudaCounts {
  std::int64_t launches = 0;     // of kernels
  std::int64_t collectives = 0;  // launches of NCCL
  std::int64_t copies = 0;
  std::int64_t fills = 0;
  std::int64_t host_calls = 0;
  std::int64_t records = 0;
  std::int64_t event_waits = 0;       // of a stream, not of the host
  std::int64_t queries = 0;           // of streams and events
  std::int64_t synchronizations = 0;  // of the host with a stream or, by freeing memory, with a device
  std::int64_t allocations = 0;
  std::int64_t frees = 0;
  std::int64_t streams = 0;
  std::int64_t events = 0;
  std::int64_t device_changes = 0;  // of threads

  FakeCudaCounts operator-(const FakeCudaCounts& before) const;
};

class FakeCuda {
 public:
  // An event is recorded on streams of its own device alone (400), and waited for on all. Memory of devices is host
  // memory, so tests read and write it directly, at times when no stream uses it. New memory is full of 0xCD, and freed
  // memory is given back in the order of its stream.
  static const CudaRuntime& Table();

  // cudaStreamLegacy, another name of the default stream of the current device.
  static CUstream_st* LegacyStream() { return reinterpret_cast<CUstream_st*>(1); }

  // Enqueues `kernel` as one launch. cudaErrorInvalidResourceHandle (400) for a stream that does not live.
  static CudaError Launch(CUstream_st* stream, std::function<void()> kernel);
  // The same for a launch of NCCL, which may block until the peers' launches run.
  static CudaError LaunchCollective(CUstream_st* stream, std::function<void()> launch);
  // The first call for a kernel and the current device waits until the device is idle, as CUDA's loader may. A test
  // lets it fail by the name "load_kernel".
  static CudaError LoadKernel(const std::string& name);
  // Whether the process has a context on the device: see CudaRuntime.
  static bool HasContext(int device);
  // Forgets contexts and kernels, as in a new process; a thread with a context keeps it.
  static void Restart();

  static FakeCudaCounts Counts();

  // The next call of the table's `function`, by any thread, returns `error` and does nothing: FailNext("allocate", 2).
  static void FailNext(absl::string_view function, CudaError error);

  // From now on all calls of threads whose current device is this one return `error`, as after a fault of the device;
  // kCudaSuccess mends it.
  static void Break(int device, CudaError error);

  // Between the two calls what is enqueued on `stream` is recorded and not performed, and so is what is enqueued on
  // streams that have waited for an event of the capture. Errors are to query or synchronize such a stream (900); to
  // query an event that was recorded there (907); to wait for an event from outside (905); two captures that meet
  // (902); and what a thread queries, synchronizes, allocates or frees while a stream of its current device is
  // captured, unless the thread's mode is kCudaCaptureRelaxed (900, and EndCapture returns 901): a device stands for a
  // process of its own. EndCapture is an error (904) when such a stream has something left that no stream waits for.
  // The graph performs its entries in the order in which they were recorded.
  static void BeginCapture(CUstream_st* stream);
  static CudaError EndCapture(CUstream_st* stream, FakeGraph* graph);
  static bool IsCaptured(CUstream_st* stream);
  static void LaunchGraph(const FakeGraph& graph, CUstream_st* stream);
};

}  // namespace tutti

#endif  // TUTTI_TESTS_HARNESS_FAKE_CUDA_H_
