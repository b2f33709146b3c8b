// Memory for short messages that come before their receives are posted.
#ifndef TUTTI_TRANSPORTS_UCX_EARLY_BUFFERS_H_
#define TUTTI_TRANSPORTS_UCX_EARLY_BUFFERS_H_

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "transports/ucx/short_frame.h"

namespace tutti::ucx {

using EarlyMemory = std::unique_ptr<std::byte[]>;

// Memory of which some is kept when it is given back, so that in the long run nothing allocates. Not thread-safe.
class EarlyBuffers {
 public:
  // Memory for at least `bytes` bytes, of which there are kMaxShort at most.
  EarlyMemory Take(std::int64_t bytes) {
    const std::size_t size = SizeOf(bytes);
    std::vector<EarlyMemory>& free = free_[size];
    if (free.empty()) return std::make_unique_for_overwrite<std::byte[]>(kSmallest << size);
    EarlyMemory memory = std::move(free.back());
    free.pop_back();
    kept_ -= kSmallest << size;
    return memory;
  }
  // Takes memory back that Take has given for `bytes` bytes.
  void Return(EarlyMemory memory, std::int64_t bytes) {
    const std::size_t size = SizeOf(bytes);
    if (kept_ + (kSmallest << size) > kMostKept) return;
    kept_ += kSmallest << size;
    free_[size].push_back(std::move(memory));
  }

 private:
  static constexpr std::size_t kSmallest = 64;
  static constexpr std::size_t kSizes = 12;  // each twice as large as the one before
  static_assert(kSmallest << (kSizes - 1) >= kMaxShort);
  static constexpr std::size_t kMostKept = 4 << 20;  // bytes

  // The place in free_ of the memory that holds `bytes` bytes.
  static std::size_t SizeOf(std::int64_t bytes) {
    const auto most = std::max<std::size_t>(static_cast<std::size_t>(bytes), kSmallest);
    return static_cast<std::size_t>(std::bit_width(most - 1) - std::bit_width(kSmallest - 1));
  }

  std::array<std::vector<EarlyMemory>, kSizes> free_;
  std::size_t kept_ = 0;  // bytes in free_
};

}  // namespace tutti::ucx

#endif  // TUTTI_TRANSPORTS_UCX_EARLY_BUFFERS_H_
