// Whether copies to memory that peers read are stored past the cache, as measured.
#ifndef TUTTI_ENGINE_PAST_CACHE_CHOICE_H_
#define TUTTI_ENGINE_PAST_CACHE_CHOICE_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/reduce.h"
#include "tutti/dtype.h"

namespace tutti {

// A processor that stores to lines which another one has read must first take each line away from that one. Between two
// hyperthreads of a core this takes no time, between the cores of a chip some, and between chips ten times as long as a
// store past the cache, which takes the line away without fetching it. But after a store past the cache the peers read
// from memory. So the class measures both ways, the one that is not in use rarely, and prefers stores past the cache
// where the others take several times as long. See docs/decisions/0044. Not thread-safe.
class PastCacheChoice {
 public:
  // Copies of fewer bytes are stored in the cache, and not measured.
  static constexpr std::int64_t kMinBytes = 16 << 10;

  // Does what kernels::Convert does, in the way that has been faster, and measures it.
  void Convert(DType dst_type, void* dst, DType src_type, const void* src, std::int64_t count);

  // The parts of Convert. How the next copy is to be stored:
  kernels::Stores Next();
  // Tells that this copy, of `bytes` bytes, took `nanos` ns.
  void Took(std::int64_t bytes, std::int64_t nanos);

 private:
  // The last times of one way, of which the median counts: a rank may lose its processor in the middle of a copy.
  struct Way {
    std::array<double, 5> nanos_per_byte = {};
    std::size_t measured = 0;  // copies

    bool is_known() const { return measured >= nanos_per_byte.size(); }
    double median() const;
  };

  Way& way(kernels::Stores stores) { return stores == kernels::Stores::kCached ? cached_ : streaming_; }

  Way cached_;
  Way streaming_;
  kernels::Stores preferred_ = kernels::Stores::kCached;
  kernels::Stores chosen_ = kernels::Stores::kCached;
  std::uint64_t copies_ = 0;
};

}  // namespace tutti

#endif  // TUTTI_ENGINE_PAST_CACHE_CHOICE_H_
