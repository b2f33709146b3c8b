// The lossless all_reduce of a bucket, shared by algorithms that need one.
#ifndef TUTTI_ALGORITHMS_EXACT_ALL_REDUCE_H_
#define TUTTI_ALGORITHMS_EXACT_ALL_REDUCE_H_

#include "absl/strings/string_view.h"
#include "tutti/plan_builder.h"
#include "tutti/schedule.h"

namespace tutti {

// The schedule named so, or for "auto" the one that suits the bucket.
inline absl::StatusOr<const Schedule*> ExactAllReduce(absl::string_view name, const CollectiveSpec&, int,
                                                      const PlanOptions& options) {
  if (name == "auto") name = options.peers_mapped ? "direct" : "ring";
  return FindSchedule(Collective::kAllReduce, name);
}

}  // namespace tutti

#endif  // TUTTI_ALGORITHMS_EXACT_ALL_REDUCE_H_
