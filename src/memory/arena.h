// The arena, which hands out pieces of a rank's region.
#ifndef TUTTI_MEMORY_ARENA_H_
#define TUTTI_MEMORY_ARENA_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/fork.h"
#include "base/mutex.h"
#include "tutti/buffer.h"
#include "tutti/transport.h"

namespace tutti {

// Allocates first fit from the region of `transport`, which the arena keeps alive. Thread-safe. Blocks are whole cache
// lines, so that two ranks never write to one line. Deterministic: equal calls of a rank give equal offsets.
//
// A block larger than a page shares no page with another block, because only whole pages can leave the peers' reach
// (OwnPagesOf). Large blocks of different ranks (of up to 16 on a node) start at different places in their first page:
// a step that reads the same element of all ranks would otherwise find these elements in one set of the first-level
// cache. A large block takes all pages that it touches: less than two pages more than its bytes (3.9 KB on average over
// ranks and sizes, where pages have 4 KB). Blocks of several MB become resident when they are allocated, on large pages
// where the kernel has them.
class Arena final : public MemorySource, public std::enable_shared_from_this<Arena> {
 public:
  Arena(std::shared_ptr<Transport> transport, Rank rank);

  // Allocates a buffer. ResourceExhausted says how many bytes were asked for, and how many the largest free piece has.
  // InvalidArgument when `bytes` is negative. Zero bytes give a buffer without memory.
  absl::StatusOr<Buffer> Allocate(std::int64_t bytes);
  void Free(std::byte* data) override;

  // The part of [data, data + bytes) on pages that hold nothing else that is in use: all of a block larger than a page,
  // otherwise the whole pages within the range. Empty for memory outside the arena. Only such pages may be secluded:
  // Transport::Seclude replaces whole pages by copies, and what a thread of the user writes meanwhile to anything else
  // on these pages would be lost. Of a block that was withdrawn, too: another part of the block may still be shared.
  absl::Span<std::byte> OwnPagesOf(std::byte* data, std::int64_t bytes) const;

  // Part of a block has left the peers' reach (Transport::Seclude), or a peer that has been given up may still write to
  // `part`: from now on the whole block is ordinary memory to this class, and its bytes never serve another block.
  void Withdraw(absl::Span<std::byte> part);

  // Sets the function that Allocate calls, holding no lock of the arena, when no free piece is large enough. `reclaim`
  // frees what nobody uses; Allocate then looks for room once more. Null: Allocate fails at once. Returns when no call
  // of the former function is under way.
  void SetReclaim(std::function<void()> reclaim);

  std::int64_t bytes() const { return region_.bytes; }
  // Whether `data` is memory of this arena, which peers on the node map.
  bool Contains(const void* data) const {
    return IsInRegion(data) && !(has_withdrawn() && IsWithdrawn(OffsetOf(data)));
  }
  // Whether `data` lies in the region, be it in a block that was withdrawn.
  bool IsInRegion(const void* data) const { return data >= region_.base && data < region_.base + region_.bytes; }
  // Whether any block was withdrawn. Until then, what Contains says of an address never changes.
  bool has_withdrawn() const { return has_withdrawn_.load(std::memory_order_acquire); }
  std::int64_t OffsetOf(const void* data) const { return static_cast<const std::byte*>(data) - region_.base; }

 private:
  // A block in use: the piece of the region that the block takes; offsets and sizes in bytes.
  struct Used {
    std::int64_t piece;
    std::int64_t piece_bytes;
    std::int64_t bytes;      // the bytes that were asked for
    bool withdrawn = false;  // see Withdraw
  };

  bool IsWithdrawn(std::int64_t offset) const;
  // Finds a free piece and marks it as used; returns its offset.
  absl::StatusOr<std::int64_t> Place(std::int64_t bytes);

  const std::shared_ptr<Transport> transport_;
  const MappedRegion region_;
  const std::int64_t page_;     // bytes per page
  const std::int64_t stagger_;  // offset of large blocks in their first page
  const MakerProcess maker_;
  Mutex reclaim_mutex_;
  std::function<void()> reclaim_ TUTTI_GUARDED_BY(reclaim_mutex_);
  std::atomic<bool> has_withdrawn_{false};  // whether any block was withdrawn
  mutable Mutex mutex_;
  // Free pieces, offset → bytes; no two are adjacent.
  std::map<std::int64_t, std::int64_t> free_ TUTTI_GUARDED_BY(mutex_);
  // Used pieces by the offset of their block.
  std::map<std::int64_t, Used> used_ TUTTI_GUARDED_BY(mutex_);
};

}  // namespace tutti

#endif  // TUTTI_MEMORY_ARENA_H_
