#include "sync/buckets.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tutti {

Layout LayOutBuckets(absl::Span<const Parameter> parameters, std::int64_t bucket_bytes,
                     std::int64_t first_bucket_bytes) {
  struct Open {
    BucketLayout bucket;
    std::int64_t limit = 0;
  };
  std::array<Open, kAllDTypes.size()> open;
  for (Open& o : open) o.limit = first_bucket_bytes;
  std::vector<BucketLayout> closed;
  auto close = [&](Open& o) {
    if (o.bucket.parameters.empty()) return;
    closed.push_back(std::exchange(o.bucket, {}));
    o.limit = bucket_bytes;
  };

  for (int i = static_cast<int>(parameters.size()) - 1; i >= 0; --i) {
    const Parameter& parameter = parameters[i];
    Open& o = open[static_cast<std::size_t>(parameter.dtype)];
    // A bucket without elements would have no memory, and hold up those after it.
    const bool both_have_elements = o.bucket.count > 0 && parameter.count > 0;
    if (both_have_elements && (o.bucket.count + parameter.count) * SizeOf(parameter.dtype) > o.limit) close(o);
    o.bucket.dtype = parameter.dtype;
    o.bucket.parameters.push_back(i);
    o.bucket.count += parameter.count;
  }
  for (Open& o : open) close(o);

  // A bucket is complete when its parameter with the smallest index is, because backward comes to that one last.
  std::sort(closed.begin(), closed.end(),
            [](const BucketLayout& a, const BucketLayout& b) { return a.parameters.back() > b.parameters.back(); });

  Layout layout{std::move(closed), std::vector<GradientPlace>(parameters.size())};
  for (std::size_t b = 0; b < layout.buckets.size(); ++b) {
    BucketLayout& bucket = layout.buckets[b];
    bucket.names = parameters[bucket.parameters.back()].name;
    if (bucket.parameters.size() > 1) absl::StrAppend(&bucket.names, " … ", parameters[bucket.parameters.front()].name);
    std::int64_t offset = 0;
    for (int i : bucket.parameters) {
      layout.places[i] = {static_cast<int>(b), offset};
      offset += parameters[i].count;
    }
  }
  return layout;
}

}  // namespace tutti
