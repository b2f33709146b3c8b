#include "memory/cuda_summary.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace tutti {

absl::StatusOr<DeviceSummary> SummarizeDevice(const CudaRuntime& cuda, int device) {
  const std::string what = absl::StrCat("GPU ", device);
  const CudaDeviceScope scope(cuda, device);
  char name[256] = "";
  int major = 0;
  int minor = 0;
  std::size_t free = 0;
  std::size_t total = 0;
  CudaError error = scope.error();
  if (error == kCudaSuccess) error = cuda.device_name(name, sizeof(name), device);
  if (error == kCudaSuccess) error = cuda.compute_capability(&major, &minor, device);
  if (error == kCudaSuccess) error = cuda.memory_sizes(&free, &total);
  if (error != kCudaSuccess) return CudaStatus(cuda, error, what);
  return DeviceSummary{.name = name,
                       .memory_bytes = static_cast<std::int64_t>(total),
                       .compute_capability = absl::StrCat(major, ".", minor)};
}

absl::StatusOr<CudaSummary> Summarize(const CudaRuntime& cuda) {
  int count = 0;
  int driver = 0;
  int runtime = 0;
  CudaError error = cuda.device_count(&count);
  if (error == kCudaSuccess) error = cuda.driver_version(&driver);
  if (error == kCudaSuccess) error = cuda.runtime_version(&runtime);
  if (error != kCudaSuccess) return CudaStatus(cuda, error, "CUDA");
  CudaSummary summary{.runtime = CudaVersionText(runtime), .driver = CudaVersionText(driver), .devices = {}};
  for (int device = 0; device < count; ++device) {
    absl::StatusOr<DeviceSummary> one = SummarizeDevice(cuda, device);
    if (!one.ok()) return one.status();
    summary.devices.push_back(*std::move(one));
  }
  return summary;
}

absl::StatusOr<CudaSummary> DescribeCuda() {
  const absl::StatusOr<const CudaRuntime*>& cuda = Cuda();
  if (!cuda.ok()) return cuda.status();
  return Summarize(**cuda);
}

}  // namespace tutti
