// What a collective promises about every element of memory at the end of a run.
#ifndef TUTTI_PLAN_PROMISE_H_
#define TUTTI_PLAN_PROMISE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
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

// The residuals of all ranks: what they are at the end of the run, differences, as ElementsOfResidual demands, and what
// the plan says of them (StateRange).
class Residuals {
 public:
  struct Run {
    ValueRun after;            // of no elements: no residual
    std::int64_t element = 0;  // position in the bucket of the first element
    std::int32_t divisor = 1;
  };
  // The elements that were `before` and the following are a part of `run` now.
  void Add(const Value& before, const Run& run);
  // The residual that was `before`, with the elements that follow in one run.
  Run Find(const Value& before) const;

 private:
  absl::flat_hash_map<SymbolId, std::map<std::int64_t, Run>> runs_;  // by value before the run
};

// All promises to the rank of `plans[index]`, among them that in-place input which is not output keeps its value.
std::vector<Promise> PromisesTo(absl::Span<const Plan> plans, std::size_t index);

// An element that is not what was promised.
struct BrokenPromise {
  std::int64_t element = 0;  // of promise.place
  std::string reason;
};

// The first element with which `runs`, the contents of promise.place, break the promise of `plan`; nullopt when they
// keep it.
std::optional<BrokenPromise> Broken(const Promise& promise, const Plan& plan, absl::Span<const ValueRun> runs,
                                    const Symbols& symbols, const Residuals& residuals);

// The number of elements from `after` on that are the residual which a message leaves behind, where `before` is the
// residual that the message made up for: (value + before) - decoded(value + before). 0 when element `after` is no such
// residual, or when `before` is added several times.
std::int64_t ElementsOfResidual(const Symbols& symbols, const Value& after, const Value& before);

// Whether the collective gives all ranks the same result.
bool PromisesReplicas(Collective collective);

}  // namespace tutti

#endif  // TUTTI_PLAN_PROMISE_H_
