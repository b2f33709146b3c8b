#include "memory/cuda_runtime.h"

#include "absl/strings/str_cat.h"

namespace tutti {
namespace {

// The oldest driver whose kernels take more than 4 KB of parameters, as those of codecs do (R530). A build of CUDA 12.1
// or newer starts on older ones, too.
constexpr int kOldestDriver = 12010;

// Why kCudaNoDriver came, from the versions: version 0 is no driver at all.
absl::Status WithoutDriver(const CudaRuntime& cuda) {
  int driver = 0;
  int runtime = 0;
  if (cuda.driver_version(&driver) != kCudaSuccess || driver == 0) {
    return absl::NotFoundError("no GPU: this machine has no NVIDIA driver");
  }
  if (cuda.runtime_version(&runtime) != kCudaSuccess) runtime = 0;
  return absl::NotFoundError(absl::StrCat("no GPU: the NVIDIA driver serves CUDA ", CudaVersionText(driver),
                                          ", and Tutti was built with CUDA ", CudaVersionText(runtime),
                                          "; update the driver"));
}

}  // namespace

std::string CudaVersionText(int version) { return absl::StrCat(version / 1000, ".", version % 1000 / 10); }

CudaDeviceScope::CudaDeviceScope(const CudaRuntime& cuda, int device) : cuda_(cuda) {
  int current = 0;
  error_ = cuda.current_device(&current);
  if (error_ != kCudaSuccess || current == device) return;
  error_ = cuda.push_device(device);
  pushed_ = error_ == kCudaSuccess;
}

CudaDeviceScope::~CudaDeviceScope() {
  if (pushed_) cuda_.pop_device();
}

absl::Status CudaStatus(const CudaRuntime& cuda, CudaError error, absl::string_view what) {
  if (error == kCudaSuccess) return absl::OkStatus();
  const std::string text = absl::StrCat(what, ": ", cuda.error_text(error), " (", cuda.error_name(error), ")");
  if (error == kCudaOutOfMemory) return absl::ResourceExhaustedError(text);
  if (error == kCudaNoDriver || error == kCudaNoDevice) return absl::UnavailableError(text);
  return absl::InternalError(text);
}

absl::StatusOr<const CudaRuntime*> Usable(const CudaRuntime* cuda) {
  if (cuda == nullptr) return absl::UnimplementedError("no GPU: Tutti was built without CUDA");
  int count = 0;
  const CudaError error = cuda->device_count(&count);
  if (error == kCudaNoDriver) return WithoutDriver(*cuda);
  if (error == kCudaNoDevice || (error == kCudaSuccess && count == 0)) {
    return absl::NotFoundError(
        "no GPU: the NVIDIA driver finds no device; is one there, and does CUDA_VISIBLE_DEVICES name it?");
  }
  if (error != kCudaSuccess) return CudaStatus(*cuda, error, "no GPU");
  int driver = 0;
  if (cuda->driver_version(&driver) == kCudaSuccess && driver < kOldestDriver) {
    return absl::NotFoundError(absl::StrCat("no GPU: the NVIDIA driver serves CUDA ", CudaVersionText(driver),
                                            ", and Tutti's kernels need ", CudaVersionText(kOldestDriver),
                                            " or newer; update the driver"));
  }
  return cuda;
}

#ifndef TUTTI_WITH_CUDA
const CudaRuntime* LinkedCuda() { return nullptr; }
#endif

const absl::StatusOr<const CudaRuntime*>& Cuda() {
  static const auto& cuda = *new absl::StatusOr<const CudaRuntime*>(Usable(LinkedCuda()));
  return cuda;
}

}  // namespace tutti
