#include "comm/device_parts.h"

#include <atomic>

#include "absl/strings/str_cat.h"
#include "engine/device_compute.h"
#include "memory/cuda_summary.h"
#include "tutti/devices.h"

namespace tutti {
namespace {

std::atomic<const DeviceParts*> given{nullptr};

// The GPU on whose default stream memory is copied: the one that has the memory, otherwise the current one. Another GPU
// than that of the memory would copy as well, but neither in order with its stream, nor without memory of its own.
absl::StatusOr<int> DeviceOfCopy(const CudaRuntime& cuda, const void* to, const void* from) {
  for (const void* const memory : {to, from}) {
    CudaPointer found;
    if (cuda.pointer(&found, memory) == kCudaSuccess && found.kind == CudaPointer::Kind::kDevice) return found.device;
  }
  int current = 0;
  if (const CudaError error = cuda.current_device(&current); error != kCudaSuccess) {
    return CudaStatus(cuda, error, "the current device");
  }
  return current;
}

}  // namespace

absl::StatusOr<DeviceParts> PartsOfThisProcess() {
  if (const DeviceParts* const parts = given.load()) return *parts;
  const absl::StatusOr<const CudaRuntime*>& cuda = Cuda();
  if (!cuda.ok()) return cuda.status();
  const absl::StatusOr<const NativeTransportMaker*> native = NcclTransports();
  const absl::StatusOr<const kernels::DeviceKernels*>& table = TableOfCuda();
  if (!table.ok()) return table.status();
  return DeviceParts{.cuda = *cuda,
                     .compute = ComputeByCuda,
                     .recode = RecodeByCuda,
                     .kernels = *table,
                     .native = native.ok() ? *native : nullptr,
                     .without_nccl = native.status()};
}

void SetPartsOfThisProcess(const DeviceParts* parts) { given.store(parts); }

absl::StatusOr<int> UsableDevices() {
  const absl::StatusOr<DeviceParts> parts = PartsOfThisProcess();
  if (!parts.ok()) return parts.status();
  int count = 0;
  const CudaError error = parts->cuda->device_count(&count);
  if (error != kCudaSuccess) return CudaStatus(*parts->cuda, error, "to count the devices");
  return count;
}

absl::StatusOr<DeviceSummary> DescribeDevice(int device) {
  const absl::StatusOr<int> count = UsableDevices();
  if (!count.ok()) return count.status();
  if (device < 0 || device >= *count) {
    return absl::InvalidArgumentError(absl::StrCat("device ", device, " must be in 0…", *count - 1));
  }
  return SummarizeDevice(*PartsOfThisProcess()->cuda, device);
}

absl::Status CopyMemory(void* to, const void* from, std::int64_t bytes) {
  const DeviceParts* const parts = given.load();
  const absl::StatusOr<const CudaRuntime*> cuda = parts != nullptr ? parts->cuda : Cuda();
  if (!cuda.ok()) return cuda.status();
  if (bytes < 0) return absl::InvalidArgumentError(absl::StrCat("bytes ", bytes, " must be at least 0"));
  const absl::StatusOr<int> device = DeviceOfCopy(**cuda, to, from);
  if (!device.ok()) return device.status();
  const CudaDeviceScope scope(**cuda, *device);
  const CudaOutsideCapture outside(**cuda);
  CudaError error = scope.error();
  if (error == kCudaSuccess) error = (*cuda)->copy_async(to, from, static_cast<std::size_t>(bytes), nullptr);
  if (error == kCudaSuccess) error = (*cuda)->synchronize_stream(nullptr);
  return CudaStatus(**cuda, error, absl::StrCat("copying ", bytes, " bytes"));
}

}  // namespace tutti
