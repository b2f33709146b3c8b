// The order in which a rank enqueues the steps of its plan on one stream, such as a stream of a GPU. Launches on a
// stream run one after the other, and a launch of messages ends only when the peers have launched theirs: the order is
// therefore a matter of all ranks, which could wait for each other in a circle otherwise.
#ifndef TUTTI_PLAN_STREAM_ORDER_H_
#define TUTTI_PLAN_STREAM_ORDER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tutti/plan.h"

namespace tutti {

// Steps of one launch are independent of each other. They are all messages, which travel at the same time, or all of
// one kind that computes, or one native step.
struct StreamOrder {
  std::vector<StepId> steps;          // every step of the plan, once
  std::vector<std::size_t> launches;  // the places in `steps` where launches end

  std::size_t size() const { return launches.size(); }
  absl::Span<const StepId> launch(std::size_t i) const {
    const std::size_t begin = i == 0 ? 0 : launches[i - 1];
    return {steps.data() + begin, launches[i] - begin};
  }
};

// The orders of all ranks, by place in `plans`, which are the plans of all ranks of one call. Launches of messages and
// native steps have numbers, by which they are sorted on every rank, and a Send has the number of its Recv, and all
// steps of a native collective have one: by induction over the numbers no rank waits in vain. Messages between two
// ranks keep their order, as libraries that match them by order alone need. Unimplemented for a plan that signals:
// ranks on streams see no peer's memory. FailedPrecondition names a step when messages have no partner, or need each
// other in a circle.
absl::StatusOr<std::vector<StreamOrder>> StreamOrdersOf(absl::Span<const Plan> plans);

// The order of a plan whose rank does not know the plans of the others, as of an all_to_all_v: all its messages are one
// launch, in which a rank waits for no launch of another rank but the one with their messages. Steps that need no
// message come before, all others after. Unimplemented names a step when a message needs another one, or when the plan
// has native steps or signals.
absl::StatusOr<StreamOrder> StreamOrderAlone(const Plan& plan);

}  // namespace tutti

#endif  // TUTTI_PLAN_STREAM_ORDER_H_
