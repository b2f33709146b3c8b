// Host memory that peers on the node can map: collectives on it need no copies.
#ifndef TUTTI_BUFFER_H_
#define TUTTI_BUFFER_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/types/span.h"

namespace tutti {

class Arena;

// Owned memory in the arena of a communicator: 64-byte aligned, contents undefined. Keeps the arena alive; may be freed
// by any thread once no call uses it. Movable, not copyable.
class Buffer {
 public:
  Buffer() = default;
  Buffer(std::shared_ptr<Arena> arena, std::byte* data, std::int64_t bytes)
      : arena_(std::move(arena)), data_(data), bytes_(bytes) {}
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    Buffer(std::move(other)).swap(*this);
    return *this;
  }
  ~Buffer();
  void swap(Buffer& other) noexcept {
    std::swap(arena_, other.arena_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }

  std::byte* data() const { return data_; }
  std::int64_t bytes() const { return bytes_; }
  // The memory as elements of T.
  template <typename T>
  absl::Span<T> as() const {
    return {reinterpret_cast<T*>(data_), static_cast<std::size_t>(bytes_) / sizeof(T)};
  }

 private:
  std::shared_ptr<Arena> arena_;
  std::byte* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

}  // namespace tutti

#endif  // TUTTI_BUFFER_H_
