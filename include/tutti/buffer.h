// Memory that a communicator allocates: host memory that peers on the node can map, so that collectives on it need no
// copies, or memory of the communicator's GPU.
#ifndef TUTTI_BUFFER_H_
#define TUTTI_BUFFER_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/types/span.h"

namespace tutti {

enum class MemoryKind : std::uint8_t {
  kHost,
  kDevice,  // of the communicator's GPU (CommunicatorOptions::cuda_device)
};

// What a buffer's memory was taken from. Thread-safe.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  virtual void Free(std::byte* data) = 0;
};

// Owned memory: 64-byte aligned, contents undefined. Keeps alive what the memory was taken from; may be freed by any
// thread once no call uses it. Movable, not copyable. To free memory of a GPU waits for all that this GPU does.
class Buffer {
 public:
  Buffer() = default;
  Buffer(std::shared_ptr<MemorySource> source, std::byte* data, std::int64_t bytes)
      : source_(std::move(source)), data_(data), bytes_(bytes) {}
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    Buffer(std::move(other)).swap(*this);
    return *this;
  }
  ~Buffer() {
    if (data_ != nullptr) source_->Free(data_);
  }
  void swap(Buffer& other) noexcept {
    std::swap(source_, other.source_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }

  std::byte* data() const { return data_; }
  std::int64_t bytes() const { return bytes_; }
  // The memory as elements of T; of a GPU, not for the host to read or write.
  template <typename T>
  absl::Span<T> as() const {
    return {reinterpret_cast<T*>(data_), static_cast<std::size_t>(bytes_) / sizeof(T)};
  }

 private:
  std::shared_ptr<MemorySource> source_;
  std::byte* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

}  // namespace tutti

#endif  // TUTTI_BUFFER_H_
