// What a collective promises about every element of memory at the end of a run.
#ifndef TUTTI_PLAN_PROMISE_H_
#define TUTTI_PLAN_PROMISE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "plan/contents.h"
#include "plan/symbols.h"
#include "tutti/plan.h"

namespace tutti {

// The promise that `place` holds elements [first, first + count) of the input of `source`, or of all ranks' inputs
// combined.
struct Promise {
  static constexpr Rank kAll = -1;
  Ref place;
  Rank source = kAll;
  std::int64_t first = 0;
};

// All promises to the rank of `plans[index]`, among them that in-place input which is not output keeps its value.
std::vector<Promise> PromisesTo(absl::Span<const Plan> plans, std::size_t index);

// The reason why `runs`, the contents of promise.place, break the promise of `plan`; empty when they keep it.
std::string Broken(const Promise& promise, const Plan& plan, absl::Span<const ValueRun> runs, const Symbols& symbols);

// The number of elements from `after` on that are the residual which a message leaves behind, where `before` is the
// residual that the message made up for: (value + before) - decoded(value + before). 0 when element `after` is no such
// residual.
std::int64_t ElementsOfResidual(const Symbols& symbols, const Value& after, const Value& before);

// Whether the collective gives all ranks the same result.
bool PromisesReplicas(Collective collective);

}  // namespace tutti

#endif  // TUTTI_PLAN_PROMISE_H_
