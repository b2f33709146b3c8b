#include "memory/arena.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "memory/shared_region.h"

namespace tutti {
namespace {

constexpr std::int64_t kLine = 64;
constexpr std::int64_t kPage = 4096;

// Where in a page the large blocks of `rank` start, in bytes: 0, 1/2, 1/4, 3/4, 1/8 … of it, to sixteenths, so that
// however many ranks share a node, their blocks are far apart. (Near ones are worse than equal ones: a processor takes
// a load for dependent on a store just made if the last 12 bits of their addresses are equal.)
std::int64_t Stagger(Rank rank) {
  std::int64_t bytes = 0;
  for (int bit = 0; bit < 4; ++bit) bytes += (rank >> bit & 1) * (kPage / 2 >> bit);
  return bytes;
}

std::int64_t RoundUp(std::int64_t bytes, std::int64_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

Arena::Arena(std::shared_ptr<Transport> transport, Rank rank)
    : transport_(std::move(transport)),
      region_(transport_->region()),
      stagger_(Stagger(rank)),
      free_{{0, region_.bytes}} {}

absl::StatusOr<Buffer> Arena::Allocate(std::int64_t bytes) {
  if (bytes < 0) return absl::InvalidArgumentError(absl::StrCat("bytes: ", bytes, " is negative"));
  if (bytes == 0) return Buffer(shared_from_this(), nullptr, 0);
  const absl::StatusOr<std::int64_t> start = Place(bytes);
  if (!start.ok()) return start.status();
  PreferLargePages(region_.base + *start, bytes);
  return Buffer(shared_from_this(), region_.base + *start, bytes);
}

absl::StatusOr<std::int64_t> Arena::Place(std::int64_t bytes) {
  const bool pages = bytes > kPage;
  const std::int64_t unit = pages ? kPage : kLine;
  const std::int64_t stagger = pages ? stagger_ : 0;
  const std::int64_t size = RoundUp(bytes, unit);
  const MutexLock lock(mutex_);
  std::int64_t largest = 0;
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    const auto [begin, length] = *it;
    const std::int64_t start = RoundUp(begin - stagger, unit) + stagger;
    if (start + size > begin + length) {
      largest = std::max(largest, length);
      continue;
    }
    free_.erase(it);
    if (start > begin) free_[begin] = start - begin;
    if (begin + length > start + size) free_[start + size] = begin + length - (start + size);
    used_[start] = size;
    return start;
  }
  return absl::ResourceExhaustedError(absl::StrCat("arena: ", bytes, " bytes asked for, the largest free piece has ",
                                                   largest, " of ", region_.bytes,
                                                   "; set TUTTI_ARENA_BYTES to a larger size"));
}

void Arena::Free(std::byte* data) {
  const MutexLock lock(mutex_);
  const auto used = used_.find(data - region_.base);
  std::int64_t begin = used->first;
  std::int64_t length = used->second;
  used_.erase(used);
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

Buffer::~Buffer() {
  if (data_ != nullptr) arena_->Free(data_);
}

}  // namespace tutti
