// Hands out pieces of a rank's region.
#ifndef TUTTI_MEMORY_ARENA_H_
#define TUTTI_MEMORY_ARENA_H_

#include <cstdint>
#include <map>
#include <memory>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "tutti/buffer.h"
#include "tutti/transport.h"

namespace tutti {

// First fit over the region of `transport`, which it keeps alive. Thread-safe. Blocks are whole cache lines, and as
// large as whole pages when larger than one, so that two ranks never write to one line. Large blocks of different ranks
// start at different places in their pages: a step that reads the same element of all ranks would else find all of them
// in one set of the first cache. Deterministic: equal calls of a rank give equal offsets. Blocks of several
// MB become resident when they are allocated, on large pages where the kernel has them.
class Arena : public std::enable_shared_from_this<Arena> {
 public:
  Arena(std::shared_ptr<Transport> transport, Rank rank);

  // ResourceExhausted says how much was asked for, and how much is free. Zero bytes give a buffer without memory.
  absl::StatusOr<Buffer> Allocate(std::int64_t bytes);
  void Free(std::byte* data);

  bool Contains(const void* data) const { return data >= region_.base && data < region_.base + region_.bytes; }
  std::int64_t OffsetOf(const void* data) const { return static_cast<const std::byte*>(data) - region_.base; }

 private:
  // The offset of a free place, which is used from then on.
  absl::StatusOr<std::int64_t> Place(std::int64_t bytes);

  const std::shared_ptr<Transport> transport_;
  const MappedRegion region_;
  const std::int64_t stagger_;  // bytes
  Mutex mutex_;
  // Offset → bytes; free ones are never adjacent.
  std::map<std::int64_t, std::int64_t> free_ TUTTI_GUARDED_BY(mutex_);
  std::map<std::int64_t, std::int64_t> used_ TUTTI_GUARDED_BY(mutex_);
};

}  // namespace tutti

#endif  // TUTTI_MEMORY_ARENA_H_
