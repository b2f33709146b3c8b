#include "sync/bucket_memory.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/floating_mode.h"
#include "base/mutex.h"
#include "comm/device_parts.h"
#include "kernels/device_kernels.h"
#include "kernels/reduce.h"
#include "memory/cuda_runtime.h"

namespace tutti {
namespace {

// Computes in the default floating-point mode, as the engine does, so that ranks end with the same bits.
class MemoryOnHost final : public BucketMemory {
 public:
  explicit MemoryOnHost(Communicator& communicator) : communicator_(communicator) {}

  MemoryKind kind() const override { return MemoryKind::kHost; }
  absl::Status Check(const void* data) const override {
    if (data == nullptr || !communicator_.cuda_device().has_value()) return absl::OkStatus();
    const absl::StatusOr<DeviceParts> parts = PartsOfThisProcess();
    if (!parts.ok()) return parts.status();
    const CudaDeviceScope scope(*parts->cuda, *communicator_.cuda_device());
    CudaPointer found;
    const CudaError error = parts->cuda->pointer(&found, data);
    if (error != kCudaSuccess) return CudaStatus(*parts->cuda, error, "asking what memory a pointer leads to");
    if (found.kind != CudaPointer::Kind::kDevice) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("memory of GPU ", found.device, ", must be of the host"));
  }
  absl::StatusOr<Buffer> AllocateZeroed(std::int64_t bytes) override {
    absl::StatusOr<Buffer> buffer = communicator_.Allocate(bytes);
    if (buffer.ok()) Zero(buffer->data(), bytes);
    return buffer;
  }

  void Copy(void* to, const void* from, std::int64_t bytes) override {
    if (bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }
  void Zero(void* data, std::int64_t bytes) override {
    std::fill_n(static_cast<std::byte*>(data), bytes, std::byte{0});
  }
  void Convert(DType to_type, void* to, DType from_type, const void* from, std::int64_t count) override {
    const DefaultFloatingMode mode;
    kernels::Convert(to_type, to, from_type, from, count, kernels::Stores::kCached);
  }
  void Combine(DType dtype, void* to, absl::Span<const void* const> terms, const Coefficient* coefficients,
               std::int64_t count) override {
    const DefaultFloatingMode mode;
    kernels::Combine(dtype, to, terms, coefficients, count, kernels::Results::kAll);
  }
  void BlendIntoMomentum(void* /*stream*/, DType dtype, void* gradient, const void* weights, const float* m,
                         std::int64_t count, const kernels::AdamFactors& factors) override {
    const DefaultFloatingMode mode;
    kernels::BlendIntoMomentum(dtype, gradient, weights, m, count, factors);
  }
  void AdamStep(DType dtype, void* weights, const void* gradient, float* m, float* v, std::int64_t count,
                const kernels::AdamFactors& factors) override {
    const DefaultFloatingMode mode;
    kernels::AdamStep(dtype, weights, gradient, m, v, count, factors);
  }
  void FrozenAdamStep(DType dtype, void* weights, const void* momentum, float* m, const float* v, std::int64_t count,
                      const kernels::AdamFactors& factors) override {
    const DefaultFloatingMode mode;
    kernels::FrozenAdamStep(dtype, weights, momentum, m, v, count, factors);
  }
  absl::Status Transfer(void* to, const void* from, std::int64_t bytes) override {
    Copy(to, from, bytes);
    return absl::OkStatus();
  }

 private:
  Communicator& communicator_;
};

class MemoryOnDevice final : public BucketMemory {
 public:
  MemoryOnDevice(Communicator& communicator, int device, const DeviceParts& parts)
      : communicator_(communicator), device_(device), cuda_(*parts.cuda), kernels_(*parts.kernels) {}
  ~MemoryOnDevice() override {
    const CudaDeviceScope scope(cuda_, device_);
    if (joined_ != nullptr) (void)cuda_.destroy_event(joined_);
    if (side_stream_ != nullptr) (void)cuda_.destroy_stream(side_stream_);
  }
  absl::Status Init() {
    const CudaDeviceScope scope(cuda_, device_);
    CudaError error = scope.error();
    if (error == kCudaSuccess) error = cuda_.create_event(&joined_);
    if (error == kCudaSuccess) error = cuda_.create_stream(&side_stream_);
    return CudaStatus(cuda_, error, absl::StrCat("setting up GPU ", device_));
  }

  MemoryKind kind() const override { return MemoryKind::kDevice; }
  void BeginThread() const override { cuda_.set_device(device_); }  // see StreamExecutor
  void AbortToo(Communicator* other) override { other_ = other; }
  absl::Status Check(const void* data) const override {
    if (data == nullptr) return absl::OkStatus();
    const CudaDeviceScope scope(cuda_, device_);
    CudaPointer found;
    CudaError error = scope.error();
    if (error == kCudaSuccess) error = cuda_.pointer(&found, data);
    if (error != kCudaSuccess) return CudaStatus(cuda_, error, "asking what memory a pointer leads to");
    if (found.kind == CudaPointer::Kind::kManaged) return absl::OkStatus();
    if (found.kind == CudaPointer::Kind::kDevice && found.device == device_) return absl::OkStatus();
    const std::string where =
        found.kind == CudaPointer::Kind::kDevice ? absl::StrCat("of GPU ", found.device) : "of the host";
    return absl::InvalidArgumentError(absl::StrCat("memory ", where, ", must be of GPU ", device_));
  }
  absl::StatusOr<Buffer> AllocateZeroed(std::int64_t bytes) override {
    absl::StatusOr<Buffer> buffer = communicator_.Allocate(bytes, MemoryKind::kDevice);
    if (!buffer.ok() || bytes == 0) return buffer;
    // The first who writes to the memory may do so on a stream that waits for none of this class.
    Zero(buffer->data(), bytes);
    const CudaDeviceScope scope(cuda_, device_);
    const CudaOutsideCapture outside(cuda_);
    const CudaError error = cuda_.synchronize_stream(stream_);
    if (error != kCudaSuccess) return CudaStatus(cuda_, error, absl::StrCat("zeroing ", bytes, " bytes"));
    return buffer;
  }

  void* stream() const override { return stream_; }
  void* side_stream() const override { return side_stream_; }
  void SetStream(void* stream) override {
    LetWait(stream, stream_);
    stream_ = static_cast<CUstream_st*>(stream);
  }
  void LetWait(void* waiting, void* stream) override {
    if (waiting == stream) return;
    const CudaDeviceScope scope(cuda_, device_);
    const MutexLock lock(mutex_);
    CudaError error = scope.error();
    // What waits for an event waits for the event's last record so far: one event serves all waits.
    if (error == kCudaSuccess) error = cuda_.record_event(joined_, static_cast<CUstream_st*>(stream));
    if (error == kCudaSuccess) error = cuda_.wait_event(static_cast<CUstream_st*>(waiting), joined_);
    AbortOn(CudaStatus(cuda_, error, "letting one stream wait for another"));
  }

  void Copy(void* to, const void* from, std::int64_t bytes) override {
    if (bytes == 0) return;
    const CudaDeviceScope scope(cuda_, device_);
    AbortOn(CudaStatus(cuda_, cuda_.copy_async(to, from, static_cast<std::size_t>(bytes), stream_), "a copy"));
  }
  void Zero(void* data, std::int64_t bytes) override {
    if (bytes == 0) return;
    const CudaDeviceScope scope(cuda_, device_);
    AbortOn(CudaStatus(cuda_, cuda_.fill_async(data, 0, static_cast<std::size_t>(bytes), stream_), "a fill"));
  }
  void Convert(DType to_type, void* to, DType from_type, const void* from, std::int64_t count) override {
    const CudaDeviceScope scope(cuda_, device_);
    AbortOn(kernels_.convert(stream_, to_type, to, from_type, from, count));
  }
  void Combine(DType dtype, void* to, absl::Span<const void* const> terms, const Coefficient* coefficients,
               std::int64_t count) override {
    const CudaDeviceScope scope(cuda_, device_);
    AbortOn(kernels_.combine(stream_, dtype, to, terms, coefficients, count, kernels::Results::kAll));
  }
  void BlendIntoMomentum(void* stream, DType dtype, void* gradient, const void* weights, const float* m,
                         std::int64_t count, const kernels::AdamFactors& factors) override {
    const CudaDeviceScope scope(cuda_, device_);
    AbortOn(
        kernels_.blend_into_momentum(static_cast<CUstream_st*>(stream), dtype, gradient, weights, m, count, factors));
  }
  void AdamStep(DType dtype, void* weights, const void* gradient, float* m, float* v, std::int64_t count,
                const kernels::AdamFactors& factors) override {
    const CudaDeviceScope scope(cuda_, device_);
    AbortOn(kernels_.adam_step(stream_, dtype, weights, gradient, m, v, count, factors));
  }
  void FrozenAdamStep(DType dtype, void* weights, const void* momentum, float* m, const float* v, std::int64_t count,
                      const kernels::AdamFactors& factors) override {
    const CudaDeviceScope scope(cuda_, device_);
    AbortOn(kernels_.frozen_adam_step(stream_, dtype, weights, momentum, m, v, count, factors));
  }
  absl::Status Transfer(void* to, const void* from, std::int64_t bytes) override {
    if (bytes == 0) return absl::OkStatus();
    const CudaDeviceScope scope(cuda_, device_);
    const CudaOutsideCapture outside(cuda_);
    CudaError error = cuda_.copy_async(to, from, static_cast<std::size_t>(bytes), stream_);
    if (error == kCudaSuccess) error = cuda_.synchronize_stream(stream_);
    absl::Status copied =
        CudaStatus(cuda_, error, absl::StrCat("copying ", bytes, " bytes between the host and GPU ", device_));
    AbortOn(copied);  // the caller's peers may be about to wait for this rank
    return copied;
  }

 private:
  void AbortOn(const absl::Status& status) {
    if (status.ok()) return;
    const absl::Status cause(status.code(),
                             absl::StrCat("rank ", communicator_.rank(), ", GPU ", device_, ": ", status.message()));
    communicator_.Abort(cause);
    if (other_ != nullptr) other_->Abort(cause);
  }

  Communicator& communicator_;
  Communicator* other_ = nullptr;
  const int device_;
  const CudaRuntime& cuda_;
  const kernels::DeviceKernels& kernels_;
  CUstream_st* stream_ = nullptr;
  CUstream_st* side_stream_ = nullptr;
  Mutex mutex_;  // between the record of `joined_` and the wait for that record
  CUevent_st* joined_ = nullptr;
};

}  // namespace

absl::StatusOr<std::unique_ptr<BucketMemory>> BucketMemory::Create(Communicator& communicator, MemoryKind kind) {
  if (kind == MemoryKind::kHost) return std::make_unique<MemoryOnHost>(communicator);
  const std::optional<int> device = communicator.cuda_device();
  if (!device.has_value()) {
    return absl::FailedPreconditionError(
        "memory of a GPU was asked for, but the communicator has no GPU; set CommunicatorOptions::cuda_device");
  }
  const absl::StatusOr<DeviceParts> parts = PartsOfThisProcess();
  if (!parts.ok()) return parts.status();
  auto memory = std::make_unique<MemoryOnDevice>(communicator, *device, *parts);
  if (absl::Status made = memory->Init(); !made.ok()) return made;
  return memory;
}

}  // namespace tutti
