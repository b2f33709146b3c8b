// Hints that a cache line will be needed soon: they change no result, only when the line travels between cores.
#ifndef TUTTI_BASE_PREFETCH_H_
#define TUTTI_BASE_PREFETCH_H_

#include <cstddef>

#include "tutti/rounding.h"

namespace tutti {

// Asks for the lines of [data, data + bytes) to read them.
inline void PrefetchToRead(const void* data, std::size_t bytes) {
  const auto* const begin = static_cast<const std::byte*>(data);
  for (std::size_t at = 0; at < bytes; at += kCacheLineBytes) __builtin_prefetch(begin + at, 0);
}

// Asks for the lines of [data, data + bytes) to write them: other cores lose their copies.
inline void PrefetchToWrite(const void* data, std::size_t bytes) {
  const auto* const begin = static_cast<const std::byte*>(data);
  for (std::size_t at = 0; at < bytes; at += kCacheLineBytes) {
#if defined(__x86_64__)
    // Without -mprfchw, GCC makes __builtin_prefetch(…, 1) a prefetch to read. Processors that do not know prefetchw
    // ignore it.
    asm volatile("prefetchw %0" : : "m"(begin[at]));
#else
    __builtin_prefetch(begin + at, 1);
#endif
  }
}

}  // namespace tutti

#endif  // TUTTI_BASE_PREFETCH_H_
