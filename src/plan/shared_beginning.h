// The beginning that two plans of one call share.
#ifndef TUTTI_PLAN_SHARED_BEGINNING_H_
#define TUTTI_PLAN_SHARED_BEGINNING_H_

#include "tutti/plan.h"

namespace tutti {

// The number of steps with which both plans begin, after which a rank may go on with either of the two; 0 if there is
// no such beginning. Both plans are of one rank and one call. The beginning is one only if
// - its steps wait for all peers, and do no more in the memory of peers than read scratch,
// - the later steps of `staged` wait again for each peer whose memory they touch, and
// - `mapped` sends no messages.
StepId SharedBeginning(const Plan& mapped, const Plan& staged);

// The number of such steps where a plan that only copies from peers (Schedule::only_copies_from_peers) takes the place
// of a staged one. Scratch then stays where it is, so `reader` must need no more of it than `mapped`, and need not wait
// again.
StepId SharedBeginningOfReader(const Plan& mapped, const Plan& reader);

}  // namespace tutti

#endif  // TUTTI_PLAN_SHARED_BEGINNING_H_
