// The verifier: proves, before anything runs, that the plans of all ranks together do what their collective promises.
#ifndef TUTTI_VERIFY_H_
#define TUTTI_VERIFY_H_

#include <functional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tutti/plan.h"

namespace tutti {

// Told how far a verification has come: the property that is being checked (form, matching and progress, races, values)
// and which part of the check is done, from 0 to 1.
using VerifyProgress = std::function<void(absl::string_view property, double part)>;

// Checks `plans`, one per rank in rank order (for send and recv, only the plans of the two ranks that take part), for
// these properties, in this order:
//
//   form      every field makes sense and every range lies inside its space, also in the memory of a peer; the input
//             is never written; the specs of the ranks belong to one call
//   matching  every Send meets exactly one Recv of the same length and dtype, every Wait its Signal, every native step
//             the same call on all ranks of its group
//   progress  no deadlock, whatever order ready steps run in, also when a Send completes only once its Recv has started
//   races     two accesses to the same bytes, one of them a write, are ordered by dependencies, messages and signals;
//             a peer touches memory of a rank only after a Wait of its own for that rank and, its scratch reads aside,
//             before the run of that rank ends
//   values    run on symbols, every element of every output becomes exactly what was promised: every rank's input once,
//             divided once for avg, 16-bit sums rounded once; nothing uninitialised is used, no step is without effect,
//             in-place input that is not output is kept. What combines the inputs of ranks may pass through casts
//             and codecs, whose losses are not judged; what is one rank's input, as in broadcast and all_gather,
//             arrives as it was (a cast to a wider type and back loses nothing). Results that the collective gives to
//             all ranks must be computed alike everywhere, so that replicas stay bit-equal. Initial state is an unknown
//             that may not reach the output, except that a message may end with the residual that becomes what this
//             message loses, of the elements and with the divisor that the plan gives the residual, and that in a mix
//             replicas stand for inputs, as Plan::mixing says. The order and the roundings of a native collective are
//             the transport's own; its ranks get the same bits.
//
// Returns OK, or the first fault as FailedPrecondition (InvalidArgument when `plans` is not one plan per rank) naming
// the rank and the step, of a wrong result the step that has written it (of a wrong state, and of a barrier that does
// not hold ranks back, the rank alone), and, in the plans of an algorithm, the schedule that has written the step.
// Relies on nothing that the builder derived. Memory grows with the steps of all ranks times the ranks, time with the
// square of the steps at worst (docs/decisions/0004 has numbers). `progress`, if given, is called when the check of a
// property begins, and now and then while races and values are checked.
absl::Status Verify(absl::Span<const Plan> plans, const VerifyProgress& progress = {});

}  // namespace tutti

#endif  // TUTTI_VERIFY_H_
