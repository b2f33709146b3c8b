#include "memory/device_memory.h"

#include <cstddef>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "memory/stuck_devices.h"

namespace tutti {
namespace {

class DeviceMemory final : public MemorySource {
 public:
  DeviceMemory(const CudaRuntime& cuda, int device) : cuda_(cuda), device_(device) {}
  void Free(std::byte* data) override {
    const CudaDeviceScope scope(cuda_, device_);
    const CudaOutsideCapture outside(cuda_);
    if (IsStuck(cuda_, device_)) return;
    // An error is one of earlier work, which has failed for somebody else, or of a process that is ending.
    (void)cuda_.free(data);
  }

 private:
  const CudaRuntime& cuda_;
  const int device_;
};

}  // namespace

absl::StatusOr<Buffer> AllocateOnDevice(const CudaRuntime& cuda, int device, std::int64_t bytes) {
  if (bytes < 0) return absl::InvalidArgumentError(absl::StrCat("bytes ", bytes, " must be at least 0"));
  auto source = std::make_shared<DeviceMemory>(cuda, device);
  if (bytes == 0) return Buffer(std::move(source), nullptr, 0);
  const CudaDeviceScope scope(cuda, device);
  const CudaOutsideCapture outside(cuda);
  void* data = nullptr;
  CudaError error = scope.error();
  if (error == kCudaSuccess) error = cuda.allocate(&data, static_cast<std::size_t>(bytes));
  if (error != kCudaSuccess) {
    return CudaStatus(cuda, error, absl::StrCat("allocating ", bytes, " bytes on GPU ", device));
  }
  return Buffer(std::move(source), static_cast<std::byte*>(data), bytes);
}

}  // namespace tutti
