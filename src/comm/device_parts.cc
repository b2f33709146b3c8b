#include "comm/device_parts.h"

#include <atomic>

#include "absl/strings/str_cat.h"
#include "engine/device_compute.h"
#include "tutti/devices.h"

namespace tutti {
namespace {

std::atomic<const DeviceParts*> given{nullptr};

}  // namespace

absl::StatusOr<DeviceParts> PartsOfThisProcess() {
  if (const DeviceParts* const parts = given.load()) return *parts;
  const absl::StatusOr<const CudaRuntime*>& cuda = Cuda();
  if (!cuda.ok()) return cuda.status();
  const absl::StatusOr<const NativeTransportMaker*> native = NcclTransports();
  if (!native.ok()) return native.status();
  const absl::StatusOr<const kernels::DeviceKernels*>& table = TableOfCuda();
  if (!table.ok()) return table.status();
  return DeviceParts{
      .cuda = *cuda, .compute = ComputeByCuda, .recode = RecodeByCuda, .kernels = *table, .native = *native};
}

void SetPartsOfThisProcess(const DeviceParts* parts) { given.store(parts); }

absl::Status CopyMemory(void* to, const void* from, std::int64_t bytes) {
  const DeviceParts* const parts = given.load();
  const absl::StatusOr<const CudaRuntime*> cuda = parts != nullptr ? parts->cuda : Cuda();
  if (!cuda.ok()) return cuda.status();
  if (bytes < 0) return absl::InvalidArgumentError(absl::StrCat("bytes ", bytes, " must be at least 0"));
  CudaError error = (*cuda)->copy_async(to, from, static_cast<std::size_t>(bytes), nullptr);
  if (error == kCudaSuccess) error = (*cuda)->synchronize_stream(nullptr);
  return CudaStatus(**cuda, error, absl::StrCat("copying ", bytes, " bytes"));
}

}  // namespace tutti
