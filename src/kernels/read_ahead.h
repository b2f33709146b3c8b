// Prefetching for kernels that go through a long range of memory once, from front to back. The processor's own
// prefetching starts anew in every page of 4 KB, and stops while a kernel computes on what is in its cache: with these
// prefetches a kernel goes through memory up to twice as fast (docs/results/codecs.md).
#ifndef TUTTI_KERNELS_READ_AHEAD_H_
#define TUTTI_KERNELS_READ_AHEAD_H_

#include <cstddef>
#include <cstdint>

#include "hwy/base.h"
#include "tutti/rounding.h"

namespace tutti::kernels {

// How far ahead codecs fetch, in bytes: the values that they encode (of blocks with a range, in casts, and where few
// values are chosen or signs taken), those that they decode to, and messages that they decode. Measured out of the
// cache.
inline constexpr std::size_t kRangeDistance = 4096;
inline constexpr std::size_t kCastDistance = 3072;
inline constexpr std::size_t kSearchDistance = 6144;
inline constexpr std::size_t kUpdateDistance = 16384;
inline constexpr std::size_t kCodeDistance = 4096;

// The elements in a turn of the loops of codecs: four lines of the cache, four vectors of AVX-512.
inline constexpr std::size_t kStride = 64;
inline constexpr std::size_t kHalfStrideBytes = kStride / 2 * sizeof(float);

// The use that a kernel makes of memory. Memory that is only read is fetched into the second cache, from which the
// processor's own prefetching takes it in time: the first, of 32 KB on many processors, is full of what kernels work
// on. Fetched into the first, encoding to uint8_block took up to 1.9 times as long on such a processor; fetched past
// the larger ones (prefetchnta), memory leaves the first before it is used, on some processors, which halves the speed.
enum class Access : std::uint8_t { kRead, kUpdate };

template <Access kAccess>
class ReadAhead {
 public:
  // The kernel goes through `bytes` bytes at `data`, and is `distance` bytes behind its prefetches. Short ranges are
  // not fetched: they may well be in the cache.
  ReadAhead(const void* data, std::size_t bytes, std::size_t distance)
      : last_(bytes < kShort ? 0 : reinterpret_cast<std::uintptr_t>(data) + bytes - kMaxBytes), distance_(distance) {}

  // To be called when the kernel is about to use [at, at + kBytes). Nothing beyond the memory is fetched: at its end
  // the last lines are fetched again, which costs next to nothing.
  template <std::size_t kBytes>
  HWY_INLINE void At(const void* at) const {
    static_assert(kBytes <= kMaxBytes);
    if (last_ == 0) return;
    const std::uintptr_t wanted = reinterpret_cast<std::uintptr_t>(at) + distance_;
    const char* const from = reinterpret_cast<const char*>(wanted < last_ ? wanted : last_);
    for (std::size_t byte = 0; byte < kBytes; byte += kCacheLineBytes) {
      if constexpr (kAccess == Access::kRead) {
        __builtin_prefetch(from + byte, 0, 2);
      } else {
        __builtin_prefetch(from + byte, 1, 3);
      }
    }
  }

 private:
  static constexpr std::size_t kMaxBytes = 512;
  static constexpr std::size_t kShort = 128 << 10;

  std::uintptr_t last_;
  std::size_t distance_;
};

// In place of a ReadAhead, for memory that is in the cache.
struct NothingAhead {
  template <std::size_t kBytes>
  HWY_INLINE void At(const void* /*at*/) const {}
};

}  // namespace tutti::kernels

#endif  // TUTTI_KERNELS_READ_AHEAD_H_
