// The memory behind a rank's region: address space that costs nothing until someone touches it.
#ifndef TUTTI_MEMORY_SHARED_REGION_H_
#define TUTTI_MEMORY_SHARED_REGION_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/unique_fd.h"

namespace tutti {

// A mapped range of address space; unmapped on destruction.
class Mapping {
 public:
  Mapping() = default;
  Mapping(void* base, std::int64_t bytes) : base_(static_cast<std::byte*>(base)), bytes_(bytes) {}
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();

  // Page-aligned; nullptr when nothing is mapped.
  std::byte* base() const { return base_; }
  std::int64_t bytes() const { return bytes_; }

 private:
  std::byte* base_ = nullptr;
  std::int64_t bytes_ = 0;
};

// Asks for pages of 2 MB under [data, data + bytes), a part of a region that nobody else uses, and whose contents
// nobody needs: a walk through several buffers then spends less time on page tables. The memory becomes resident.
void PreferLargePages(std::byte* data, std::int64_t bytes);

// Maps memory that only this process can map, zero at first, and resident only where touched. InvalidArgument when
// bytes < 1; ResourceExhausted when there is no such address space.
absl::StatusOr<Mapping> MapPrivateRegion(std::int64_t bytes);

// Memory that other processes can map once they are given `fd`. The memory has no name in any file system, so only a
// process that was given `fd` can open the memory, and nothing is left behind when its processes die. The size is
// sealed.
struct SharedRegion {
  UniqueFd fd;
  Mapping mapping;
};

// Creates a region that is zero at first and resident only where touched (nothing is reserved, and the size of /dev/shm
// does not matter). Errors are those of MapPrivateRegion.
absl::StatusOr<SharedRegion> CreateSharedRegion(std::int64_t bytes);

// Maps a region that a peer created. InvalidArgument unless `fd` is a memory file of exactly `bytes` whose size is
// sealed: a peer that could shrink it later could kill this process.
absl::StatusOr<Mapping> MapSharedRegion(int fd, std::int64_t bytes);

// Makes the pages that [data, data + bytes) touches, a part of a mapped region, memory of this process alone: addresses
// and contents stay, and what other processes write through their own mappings no longer arrives. Nobody in this
// process may write to these pages meanwhile. Returns the pages. ResourceExhausted when there is no memory for the
// copy; nothing has changed then.
absl::StatusOr<absl::Span<std::byte>> Seclude(std::byte* data, std::int64_t bytes);

}  // namespace tutti

#endif  // TUTTI_MEMORY_SHARED_REGION_H_
