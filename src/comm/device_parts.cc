#include "comm/device_parts.h"

#include <atomic>

#include "engine/device_compute.h"

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
  return DeviceParts{.cuda = *cuda, .compute = ComputeByCuda, .recode = RecodeByCuda, .native = *native};
}

void SetPartsOfThisProcess(const DeviceParts* parts) { given.store(parts); }

}  // namespace tutti
