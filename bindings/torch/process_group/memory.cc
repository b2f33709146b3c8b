#include "bindings/torch/process_group/memory.h"

#include <ATen/ATen.h>
#include <c10/core/CPUAllocator.h>

#include <cstring>
#include <memory>
#include <utility>

#include "tutti/torch/errors.h"

namespace tutti::dist {
namespace {

void FreeBuffer(void* buffer) { delete static_cast<Buffer*>(buffer); }

at::DataPtr DataPtrOf(Buffer buffer) {
  auto owner = std::make_unique<Buffer>(std::move(buffer));
  void* const data = owner->data();
  return {data, owner.release(), &FreeBuffer, at::kCPU};
}

}  // namespace

at::Tensor EmptyInArena(Communicator& communicator, at::IntArrayRef sizes, at::ScalarType type) {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) {
    TORCH_CHECK_VALUE(size >= 0, "tutti: empty: the size ", size, " of the shape ", sizes, " is negative");
    TORCH_CHECK_VALUE(!__builtin_mul_overflow(count, size, &count), "tutti: empty: the shape ", sizes,
                      " has more elements than 64 bits can count");
  }
  const auto per_element = static_cast<std::int64_t>(c10::elementSize(type));
  std::int64_t bytes = 0;
  TORCH_CHECK_VALUE(!__builtin_mul_overflow(count, per_element, &bytes), "tutti: empty: the shape ", sizes,
                    " has more bytes than 64 bits can count");
  at::Storage storage(at::Storage::use_byte_size_t(), bytes, DataPtrOf(nn::ValueOrThrow(communicator.Allocate(bytes))),
                      /*allocator=*/nullptr,
                      /*resizable=*/false);
  return at::empty({0}, at::TensorOptions(at::kCPU).dtype(type)).set_(std::move(storage), 0, sizes);
}

void MoveToArena(Communicator& communicator, const at::Tensor& tensor) {
  c10::StorageImpl& storage = *tensor.storage().unsafeGetStorageImpl();
  if (storage.data_ptr().get_deleter() == &FreeBuffer) return;
  if (!storage.resizable() || storage.device_type() != at::kCPU || storage.nbytes() == 0) return;
  absl::StatusOr<Buffer> buffer = communicator.Allocate(static_cast<std::int64_t>(storage.nbytes()));
  if (!buffer.ok()) return;
  std::memcpy(buffer->data(), storage.data(), storage.nbytes());
  storage.set_data_ptr(DataPtrOf(*std::move(buffer)));
}

}  // namespace tutti::dist
