// The table of the CUDA runtime that is linked into this library. Compiled only where Tutti is built with CUDA.
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "base/mutex.h"
#include "memory/cuda_runtime.h"

namespace tutti {
namespace {

static_assert(kCudaSuccess == cudaSuccess && kCudaOutOfMemory == cudaErrorMemoryAllocation);
static_assert(kCudaNoDriver == cudaErrorInsufficientDriver && kCudaNoDevice == cudaErrorNoDevice);
static_assert(kCudaNotReady == cudaErrorNotReady);
static_assert(kCudaCaptureRelaxed == cudaStreamCaptureModeRelaxed);
static_assert(kCudaInvalidHandle == cudaErrorInvalidResourceHandle);
static_assert(kCudaContextIsDestroyed == cudaErrorContextIsDestroyed);
#if CUDART_VERSION >= 13000  // older headers do not know all of them
constexpr cudaError_t kErrorsOfDevices[] = {cudaErrorCudartUnloading,     cudaErrorECCUncorrectable,
                                            cudaErrorNvlinkUncorrectable, cudaErrorContained,
                                            cudaErrorIllegalAddress,      cudaErrorLaunchTimeout,
                                            cudaErrorContextIsDestroyed,  cudaErrorAssert,
                                            cudaErrorHardwareStackError,  cudaErrorIllegalInstruction,
                                            cudaErrorMisalignedAddress,   cudaErrorInvalidAddressSpace,
                                            cudaErrorInvalidPc,           cudaErrorLaunchFailure,
                                            cudaErrorTensorMemoryLeak,    cudaErrorMpsClientTerminated,
                                            cudaErrorExternalDevice};
static_assert(std::ranges::equal(kErrorsOfDevices, kCudaErrorsOfDevices));
#endif

// Passes the answer of a call of CUDA on. CUDA keeps each error, and "not ready", too, as the last error of this
// thread, for which the program's next launch would be blamed; Tutti tells its callers of errors itself.
CudaError Answer(cudaError_t answer) {
  if (answer != cudaSuccess) cudaGetLastError();
  return answer;
}

CudaError DeviceName(char* name, int bytes, int device) {
  cudaDeviceProp properties{};
  const CudaError error = Answer(cudaGetDeviceProperties(&properties, device));
  if (error != cudaSuccess || bytes < 1) return error;
  std::strncpy(name, properties.name, static_cast<std::size_t>(bytes) - 1);
  name[bytes - 1] = '\0';
  return error;
}

CudaError DeviceUuid(char* uuid, int device) {
  cudaDeviceProp properties{};
  const CudaError error = Answer(cudaGetDeviceProperties(&properties, device));
  if (error == cudaSuccess) std::memcpy(uuid, properties.uuid.bytes, sizeof properties.uuid.bytes);
  return error;
}

CudaError ComputeCapability(int* major, int* minor, int device) {
  const CudaError error = Answer(cudaDeviceGetAttribute(major, cudaDevAttrComputeCapabilityMajor, device));
  return error != cudaSuccess ? error
                              : Answer(cudaDeviceGetAttribute(minor, cudaDevAttrComputeCapabilityMinor, device));
}

// The driver's functions as CUDA 12.0 has them, which every driver has that serves this runtime; null where there is no
// driver. The runtime has loaded the driver's library, so nothing more is linked.
template <typename Function>
Function OfDriver(const char* name) {
  void* found = nullptr;
#if CUDART_VERSION >= 12050
  (void)cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, nullptr);
#else
  (void)cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, nullptr);
#endif
  return reinterpret_cast<Function>(found);
}

// The context of the device that the runtime uses, kept for the life of the process.
CudaError PrimaryContext(int device, CUcontext* context) {
  static const auto get = OfDriver<PFN_cuDeviceGet_v2000>("cuDeviceGet");
  static const auto retain = OfDriver<PFN_cuDevicePrimaryCtxRetain_v7000>("cuDevicePrimaryCtxRetain");
  static Mutex mutex;
  static auto& contexts = *new std::map<int, CUcontext>;
  if (get == nullptr || retain == nullptr) return kCudaNoDriver;
  const MutexLock lock(mutex);
  if (const auto known = contexts.find(device); known != contexts.end()) {
    *context = known->second;
    return kCudaSuccess;
  }
  CUdevice in_driver = 0;
  CUresult error = get(&in_driver, device);
  if (error == CUDA_SUCCESS) error = retain(context, in_driver);
  if (error == CUDA_SUCCESS) contexts[device] = *context;
  return error;  // errors of the driver have the runtime's numbers
}

// The runtime uses the device whose context is the thread's current one in the driver (CUDA Runtime API, "Interactions
// with the CUDA Driver API").
CudaError PushDevice(int device) {
  static const auto push = OfDriver<PFN_cuCtxPushCurrent_v4000>("cuCtxPushCurrent");
  CUcontext context = nullptr;
  const CudaError error = PrimaryContext(device, &context);
  if (error != kCudaSuccess) return error;
  return push == nullptr ? kCudaNoDriver : static_cast<CudaError>(push(context));
}

CudaError PopDevice() {
  static const auto pop = OfDriver<PFN_cuCtxPopCurrent_v4000>("cuCtxPopCurrent");
  CUcontext popped = nullptr;
  return pop == nullptr ? kCudaNoDriver : static_cast<CudaError>(pop(&popped));
}

CudaError Pointer(CudaPointer* found, const void* data) {
  cudaPointerAttributes attributes{};
  const CudaError error = Answer(cudaPointerGetAttributes(&attributes, data));
  if (error != cudaSuccess) return error;
  *found = {};
  if (attributes.type == cudaMemoryTypeUnregistered) return error;
  found->device = attributes.device;
  found->kind = attributes.type == cudaMemoryTypeDevice    ? CudaPointer::Kind::kDevice
                : attributes.type == cudaMemoryTypeManaged ? CudaPointer::Kind::kManaged
                                                           : CudaPointer::Kind::kPinned;
  return error;
}

CudaError CaptureOf(CUstream_st* stream, CudaCapture* capture, unsigned long long* id) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  *id = 0;
#if CUDART_VERSION >= 13000
  const CudaError error = Answer(cudaStreamGetCaptureInfo(stream, &status, id));
#else
  const CudaError error = Answer(cudaStreamGetCaptureInfo_v2(stream, &status, id));
#endif
  if (status == cudaStreamCaptureStatusNone) *id = 0;
  *capture = status == cudaStreamCaptureStatusNone     ? CudaCapture::kNone
             : status == cudaStreamCaptureStatusActive ? CudaCapture::kActive
                                                       : CudaCapture::kInvalidated;
  return error;
}

CudaError ExchangeCaptureMode(int* mode) {
  auto exchanged = static_cast<cudaStreamCaptureMode>(*mode);
  const CudaError error = Answer(cudaThreadExchangeStreamCaptureMode(&exchanged));
  *mode = exchanged;
  return error;
}

template <auto Function>
struct AsInt;
// `Function`, which returns cudaError_t, with CudaError in its place: the table has no type of CUDA's headers.
template <typename... Arguments, cudaError_t (*Function)(Arguments...)>
struct AsInt<Function> {
  static CudaError Call(Arguments... arguments) { return Answer(Function(arguments...)); }
};

CudaRuntime Linked() {
  return {
      .device_count = AsInt<cudaGetDeviceCount>::Call,
      .device_name = DeviceName,
      .compute_capability = ComputeCapability,
      .device_uuid = DeviceUuid,
      .driver_version = AsInt<cudaDriverGetVersion>::Call,
      .runtime_version = AsInt<cudaRuntimeGetVersion>::Call,
      .current_device = AsInt<cudaGetDevice>::Call,
      .set_device = AsInt<cudaSetDevice>::Call,
      .push_device = PushDevice,
      .pop_device = PopDevice,
      .memory_sizes = AsInt<cudaMemGetInfo>::Call,
      .allocate = [](void** data, std::size_t bytes) -> CudaError { return Answer(cudaMalloc(data, bytes)); },
      .free = AsInt<cudaFree>::Call,
      .allocate_async = [](void** data, std::size_t bytes, CUstream_st* stream) -> CudaError {
        return Answer(cudaMallocAsync(data, bytes, stream));
      },
      .free_async = AsInt<cudaFreeAsync>::Call,
      .allocate_pinned = [](void** data, std::size_t bytes) -> CudaError {
        return Answer(cudaHostAlloc(data, bytes, cudaHostAllocPortable));
      },
      .free_pinned = AsInt<cudaFreeHost>::Call,
      .pointer = Pointer,
      .copy_async = [](void* dst, const void* src, std::size_t bytes, CUstream_st* stream) -> CudaError {
        return Answer(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, stream));
      },
      .fill_async = AsInt<cudaMemsetAsync>::Call,
      .call_host = AsInt<cudaLaunchHostFunc>::Call,
      .create_stream = [](CUstream_st** stream) -> CudaError {
        return Answer(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
      },
      .destroy_stream = AsInt<cudaStreamDestroy>::Call,
      .query_stream = [](CUstream_st* stream) { return Answer(cudaStreamQuery(stream)); },
      .synchronize_stream = AsInt<cudaStreamSynchronize>::Call,
      .capture_of = CaptureOf,
      .exchange_capture_mode = ExchangeCaptureMode,
      .create_event = [](CUevent_st** event) -> CudaError {
        return Answer(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
      },
      .destroy_event = AsInt<cudaEventDestroy>::Call,
      .record_event = [](CUevent_st* event, CUstream_st* stream) -> CudaError {
        return Answer(cudaEventRecord(event, stream));
      },
      .query_event = [](CUevent_st* event) { return Answer(cudaEventQuery(event)); },
      .wait_event = [](CUstream_st* stream, CUevent_st* event) -> CudaError {
        return Answer(cudaStreamWaitEvent(stream, event, 0));
      },
      .error_name = [](CudaError error) { return cudaGetErrorName(static_cast<cudaError_t>(error)); },
      .error_text = [](CudaError error) { return cudaGetErrorString(static_cast<cudaError_t>(error)); },
  };
}

}  // namespace

const CudaRuntime* LinkedCuda() {
  static const CudaRuntime cuda = Linked();
  return &cuda;
}

}  // namespace tutti
