// Memory for benches of kernels, as plans have it: it begins at a page, and large memory lies on large pages where the
// kernel has them.
#ifndef TUTTI_BENCH_KERNELS_PAGES_H_
#define TUTTI_BENCH_KERNELS_PAGES_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "memory/shared_region.h"

namespace tutti {

template <typename T>
class Pages {
 public:
  explicit Pages(std::size_t size)
      : mapping_(*MapPrivateRegion(static_cast<std::int64_t>(size * sizeof(T)))), size_(size) {
    PreferLargePages(mapping_.base(), mapping_.bytes());
  }
  absl::Span<T> span() { return {reinterpret_cast<T*>(mapping_.base()), size_}; }

 private:
  Mapping mapping_;
  std::size_t size_;
};

}  // namespace tutti

#endif  // TUTTI_BENCH_KERNELS_PAGES_H_
