#include "memory/arena.h"

#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "memory/shared_region.h"
#include "tutti/rounding.h"

namespace tutti {
namespace {

// The place in a page where large blocks of `rank` start, in bytes: 0, 1/2, 1/4, 3/4, 1/8 … of 4096, to sixteenths, so
// that the blocks of up to 16 ranks are at least 256 bytes apart; rank 16 starts over at 0. (Near places are worse than
// equal ones: a processor takes a load for dependent on a store just made if the last 12 bits of their addresses are
// equal.)
std::int64_t Stagger(Rank rank) {
  std::int64_t bytes = 0;
  for (int bit = 0; bit < 4; ++bit) bytes += (rank >> bit & 1) * (2048 >> bit);
  return bytes;
}

}  // namespace

Arena::Arena(std::shared_ptr<Transport> transport, Rank rank)
    : transport_(std::move(transport)),
      region_(transport_->region()),
      page_(sysconf(_SC_PAGESIZE)),
      stagger_(Stagger(rank)),
      free_{{0, region_.bytes}} {}

absl::StatusOr<Buffer> Arena::Allocate(std::int64_t bytes) {
  if (bytes < 0) return absl::InvalidArgumentError(absl::StrCat("bytes is ", bytes, ", must be at least 0"));
  if (bytes == 0) return Buffer(shared_from_this(), nullptr, 0);
  absl::StatusOr<std::int64_t> start = Place(bytes);
  if (!start.ok()) {
    const MutexLock lock(reclaim_mutex_);
    if (reclaim_ != nullptr) {
      reclaim_();
      start = Place(bytes);
    }
  }
  if (!start.ok()) return start.status();
  PreferLargePages(region_.base + *start, bytes);
  return Buffer(shared_from_this(), region_.base + *start, bytes);
}

absl::StatusOr<std::int64_t> Arena::Place(std::int64_t bytes) {
  const bool has_pages = bytes > page_;
  const std::int64_t unit = has_pages ? page_ : kCacheLineBytes;
  const std::int64_t before = has_pages ? stagger_ : 0;
  // A size larger than the region is cut to one byte more than the region, which does not fit either, so that no sum
  // below overflows.
  const std::int64_t size = RoundUp(before + std::min(bytes, region_.bytes + 1), unit);
  const MutexLock lock(mutex_);
  std::int64_t largest = 0;
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    const auto [begin, length] = *it;
    const std::int64_t first = RoundUp(begin, unit);
    if (first + size > begin + length) {
      largest = std::max(largest, length);
      continue;
    }
    free_.erase(it);
    if (first > begin) free_[begin] = first - begin;
    if (begin + length > first + size) free_[first + size] = begin + length - (first + size);
    used_[first + before] = {.piece = first, .piece_bytes = size, .bytes = bytes};
    return first + before;
  }
  return absl::ResourceExhaustedError(absl::StrCat("arena: ", bytes, " bytes asked for, the largest free piece has ",
                                                   largest, " of ", region_.bytes,
                                                   "; set TUTTI_ARENA_BYTES to a larger size"));
}

void Arena::SetReclaim(std::function<void()> reclaim) {
  const MutexLock lock(reclaim_mutex_);
  reclaim_ = std::move(reclaim);
}

absl::Span<std::byte> Arena::OwnPagesOf(std::byte* data, std::int64_t bytes) const {
  if (!IsInRegion(data)) return {};
  std::int64_t begin = OffsetOf(data);
  std::int64_t end = begin + bytes;
  const MutexLock lock(mutex_);
  const auto next = used_.upper_bound(begin);
  if (next == used_.begin()) return {};
  const auto& [block, its] = *std::prev(next);
  const std::int64_t block_end = block + its.bytes;
  const bool has_pages = its.bytes > page_;
  if (!has_pages || begin != block) begin = RoundUp(begin, page_);
  if (!has_pages || end != block_end) end = end / page_ * page_;
  if (begin >= end || end > block_end) return {};
  return {region_.base + begin, static_cast<std::size_t>(end - begin)};
}

void Arena::Withdraw(absl::Span<std::byte> part) {
  const MutexLock lock(mutex_);
  const auto next = used_.upper_bound(OffsetOf(part.data()));
  if (next == used_.begin()) return;
  std::prev(next)->second.withdrawn = true;
  has_withdrawn_.store(true, std::memory_order_release);
}

bool Arena::IsWithdrawn(std::int64_t offset) const {
  const MutexLock lock(mutex_);
  const auto next = used_.upper_bound(offset);
  return next != used_.begin() && std::prev(next)->second.withdrawn;
}

void Arena::Free(std::byte* data) {
  if (!maker_.is_this()) return;  // the memory is the parent's
  const MutexLock lock(mutex_);
  const auto used = used_.find(data - region_.base);
  const std::int64_t begin = used->second.piece;
  std::int64_t length = used->second.piece_bytes;
  const bool withdrawn = used->second.withdrawn;
  used_.erase(used);
  if (withdrawn) return;
  auto next = free_.lower_bound(begin);
  if (next != free_.end() && next->first == begin + length) {
    length += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == begin) {
      previous->second += length;
      return;
    }
  }
  free_[begin] = length;
}

}  // namespace tutti
