// The part of the CUDA runtime that Tutti calls, as one table of functions. The real table comes from the CUDA runtime
// that is linked into the library (cuda_linked.cc); tests pass another one, which works on host memory
// (tests/harness/fake_cuda.h). A program runs with and without a GPU: whether there is one is asked at run time.
#ifndef TUTTI_MEMORY_CUDA_RUNTIME_H_
#define TUTTI_MEMORY_CUDA_RUNTIME_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

// CUDA's own handles, declared as CUDA's headers declare them, so that no vendor header is needed here.
struct CUstream_st;  // NOLINT(readability-identifier-naming)
struct CUevent_st;   // NOLINT(readability-identifier-naming)

namespace tutti {

// A value of cudaError_t.
using CudaError = int;
inline constexpr CudaError kCudaSuccess = 0;
inline constexpr CudaError kCudaOutOfMemory = 2;
// There is no driver, or an older one than the runtime needs.
inline constexpr CudaError kCudaNoDriver = 35;
inline constexpr CudaError kCudaNoDevice = 100;
// The answer of a query: the stream or event has work that has not ended. Not an error.
inline constexpr CudaError kCudaNotReady = 600;
// A stream or event that does not live, or is of another device than the one it is used with or for.
inline constexpr CudaError kCudaInvalidHandle = 400;
inline constexpr CudaError kCudaContextIsDestroyed = 709;
// The errors after which nothing of this process runs on the device and all calls return an error, as driver_types.h
// says of them. cuda_linked.cc has their names.
inline constexpr CudaError kCudaErrorsOfDevices[] = {4,   214, 220, 226, 700, 702, 709, 710, 714,
                                                     715, 716, 717, 718, 719, 721, 810, 911};
// A value of cudaStreamCaptureMode.
inline constexpr int kCudaCaptureRelaxed = 2;

// What kind of memory a pointer leads to, and of which device.
struct CudaPointer {
  enum class Kind : std::uint8_t {
    kPageable,  // host memory that CUDA does not know
    kPinned,    // host memory that devices can read and write
    kDevice,
    kManaged,  // CUDA moves the memory between host and devices
  };
  Kind kind = Kind::kPageable;
  int device = -1;  // -1 of pageable memory
};

// Whether what is enqueued on a stream is recorded into a graph and not performed.
enum class CudaCapture : std::uint8_t { kNone, kActive, kInvalidated };

// Every function may be called by any thread, returns kCudaSuccess or an error, and may also return an error of earlier
// work of the device. "Current" is the device that set_device or push_device has set in the calling thread; at first
// device 0. A null stream is the default stream of the current device. set_device, push_device, and from memory_sizes
// on all functions but those make a context on the current device where the process has none there, which takes
// hundreds of MB of that GPU: also on device 0, in a thread that has set none (CUDA Runtime API, "Interactions with the
// CUDA Driver API").
struct CudaRuntime {
  CudaError (*device_count)(int* count) = nullptr;
  // The name, cut to `bytes` with its final zero.
  CudaError (*device_name)(char* name, int bytes, int device) = nullptr;
  CudaError (*compute_capability)(int* major, int* minor, int device) = nullptr;
  // 16 bytes that no two GPUs, or parts of a GPU that act as one, have in common.
  CudaError (*device_uuid)(char* uuid, int device) = nullptr;
  // 1000 · major + 10 · minor; the driver's is that of the newest CUDA it serves, and 0 where there is no driver.
  CudaError (*driver_version)(int* version) = nullptr;
  CudaError (*runtime_version)(int* version) = nullptr;
  CudaError (*current_device)(int* device) = nullptr;
  CudaError (*set_device)(int device) = nullptr;
  // Makes the device the current one until pop_device. Then the thread is as it was: where it had set no device, it has
  // none again, which set_device cannot give back without a context on device 0.
  CudaError (*push_device)(int device) = nullptr;
  CudaError (*pop_device)() = nullptr;

  // Bytes of the current device.
  CudaError (*memory_sizes)(std::size_t* free, std::size_t* total) = nullptr;
  // Memory of the current device. Freeing waits for the work of the whole device.
  CudaError (*allocate)(void** data, std::size_t bytes) = nullptr;
  CudaError (*free)(void* data) = nullptr;
  // The same in the order of a stream, without a wait; an error where the device has no memory pools.
  CudaError (*allocate_async)(void** data, std::size_t bytes, CUstream_st* stream) = nullptr;
  CudaError (*free_async)(void* data, CUstream_st* stream) = nullptr;
  CudaError (*allocate_pinned)(void** data, std::size_t bytes) = nullptr;
  CudaError (*free_pinned)(void* data) = nullptr;
  CudaError (*pointer)(CudaPointer* found, const void* data) = nullptr;

  // Between any two kinds of memory. From or to pageable memory the call may wait for the copy.
  CudaError (*copy_async)(void* dst, const void* src, std::size_t bytes, CUstream_st* stream) = nullptr;
  // Sets every byte to the low byte of `value`.
  CudaError (*fill_async)(void* dst, int value, std::size_t bytes, CUstream_st* stream) = nullptr;
  // Calls `function(data)` in the order of the stream, on a thread of CUDA; `function` calls nothing of CUDA.
  CudaError (*call_host)(CUstream_st* stream, void (*function)(void*), void* data) = nullptr;

  // A stream of the current device that does not wait for the default stream. A destroyed stream still performs what
  // was enqueued.
  CudaError (*create_stream)(CUstream_st** stream) = nullptr;
  CudaError (*destroy_stream)(CUstream_st* stream) = nullptr;
  // kCudaNotReady while work of the stream has not ended.
  CudaError (*query_stream)(CUstream_st* stream) = nullptr;
  CudaError (*synchronize_stream)(CUstream_st* stream) = nullptr;
  // And the number of that capture among all of the process; 0: none.
  CudaError (*capture_of)(CUstream_st* stream, CudaCapture* capture, unsigned long long* id) = nullptr;
  // Sets the mode of the calling thread, a cudaStreamCaptureMode: in kCudaCaptureRelaxed the thread may query,
  // synchronize and allocate while a stream is captured. Returns the former mode in the same place.
  CudaError (*exchange_capture_mode)(int* mode) = nullptr;

  // An event without times. One that was never recorded counts as ended.
  CudaError (*create_event)(CUevent_st** event) = nullptr;
  CudaError (*destroy_event)(CUevent_st* event) = nullptr;
  CudaError (*record_event)(CUevent_st* event, CUstream_st* stream) = nullptr;
  CudaError (*query_event)(CUevent_st* event) = nullptr;
  // What is enqueued on `stream` from now on waits for the last record of `event` so far.
  CudaError (*wait_event)(CUstream_st* stream, CUevent_st* event) = nullptr;

  // "cudaErrorNoDevice", "no CUDA-capable device is detected".
  const char* (*error_name)(CudaError error) = nullptr;
  const char* (*error_text)(CudaError error) = nullptr;
};

// "13.0", of the number that driver_version and runtime_version give.
std::string CudaVersionText(int version);

// Makes a device the current one of the calling thread, which on destruction is as it was before.
class CudaDeviceScope {
 public:
  CudaDeviceScope(const CudaRuntime& cuda, int device);
  ~CudaDeviceScope();
  CudaDeviceScope(const CudaDeviceScope&) = delete;
  CudaDeviceScope& operator=(const CudaDeviceScope&) = delete;

  CudaError error() const { return error_; }

 private:
  const CudaRuntime& cuda_;
  bool pushed_ = false;
  CudaError error_ = kCudaSuccess;
};

// Lets the calling thread query, synchronize and allocate although a stream may be captured meanwhile.
class CudaOutsideCapture {
 public:
  explicit CudaOutsideCapture(const CudaRuntime& cuda) : cuda_(cuda) { cuda_.exchange_capture_mode(&mode_); }
  ~CudaOutsideCapture() { cuda_.exchange_capture_mode(&mode_); }
  CudaOutsideCapture(const CudaOutsideCapture&) = delete;
  CudaOutsideCapture& operator=(const CudaOutsideCapture&) = delete;

 private:
  const CudaRuntime& cuda_;
  int mode_ = kCudaCaptureRelaxed;  // the one to set next
};

// OK, or an error whose text begins with `what` and holds CUDA's name and text of the error: ResourceExhausted for
// kCudaOutOfMemory, Unavailable where there is no driver or device, otherwise Internal.
absl::Status CudaStatus(const CudaRuntime& cuda, CudaError error, absl::string_view what);

// `cuda`, if it is there and has at least one device. Otherwise the reason in plain words: Unimplemented when `cuda` is
// null (built without CUDA), NotFound when there is no driver, an older one than needed, or no device, Internal for
// other errors. Asking starts CUDA's driver in this process, which a later fork leaves unusable in the child.
absl::StatusOr<const CudaRuntime*> Usable(const CudaRuntime* cuda);

// The runtime linked into this library; null when it was built without CUDA.
const CudaRuntime* LinkedCuda();

// Usable(LinkedCuda()), asked once.
const absl::StatusOr<const CudaRuntime*>& Cuda();

}  // namespace tutti

#endif  // TUTTI_MEMORY_CUDA_RUNTIME_H_
