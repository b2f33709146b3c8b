// The software that serves a GPU: of this machine, or, in tests, one that works on host memory.
#ifndef TUTTI_COMM_DEVICE_PARTS_H_
#define TUTTI_COMM_DEVICE_PARTS_H_

#include "absl/status/statusor.h"
#include "engine/stream_device.h"
#include "tutti/native_transport.h"

namespace tutti {

namespace kernels {
struct DeviceKernels;
}

// Everything in it lives as long as the process.
struct DeviceParts {
  const CudaRuntime* cuda = nullptr;
  decltype(StreamDevice::compute) compute = nullptr;
  decltype(StreamDevice::recode) recode = nullptr;
  const kernels::DeviceKernels* kernels = nullptr;
  const NativeTransportMaker* native = nullptr;  // of NCCL; null where there is none
  absl::Status without_nccl = {};                // and why
};

// Otherwise the reason: built without CUDA, no driver, no device.
absl::StatusOr<DeviceParts> PartsOfThisProcess();
// Lets PartsOfThisProcess return `parts` from now on, for tests; null takes that back.
void SetPartsOfThisProcess(const DeviceParts* parts);

}  // namespace tutti

#endif  // TUTTI_COMM_DEVICE_PARTS_H_
