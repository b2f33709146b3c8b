// The layout of buckets: which gradient lies where. A pure function of the parameters.
#ifndef TUTTI_SYNC_BUCKETS_H_
#define TUTTI_SYNC_BUCKETS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "tutti/synchronizer.h"

namespace tutti {

struct BucketLayout {
  DType dtype = DType::kF32;
  std::int64_t count = 0;  // elements
  std::vector<int> parameters;
  std::string names = {};  // of the first and the last parameter in the order of forward: "conv1.weight … conv2.bias"
};

struct GradientPlace {
  int bucket = 0;
  std::int64_t offset = 0;  // elements from the start of the bucket
};

struct Layout {
  std::vector<BucketLayout> buckets;
  std::vector<GradientPlace> places;  // one per parameter
};

// Walks the parameters from last to first, as backward does, and fills one bucket per dtype at a time, without gaps. A
// bucket is closed before it would exceed its limit: `first_bucket_bytes` for the first bucket of each dtype,
// `bucket_bytes` for the others. A parameter that alone exceeds the limit gets a bucket of its own. Buckets are
// numbered in the order in which backward completes them.
Layout LayOutBuckets(absl::Span<const Parameter> parameters, std::int64_t bucket_bytes,
                     std::int64_t first_bucket_bytes);

}  // namespace tutti

#endif  // TUTTI_SYNC_BUCKETS_H_
