// The beginning that two plans of one call share.
#ifndef TUTTI_PLAN_SHARED_BEGINNING_H_
#define TUTTI_PLAN_SHARED_BEGINNING_H_

#include "tutti/plan.h"

namespace tutti {

// The number of steps with which both `mapped` and `staged` begin, if these steps let a rank decide which of the two
// plans it goes on with: they wait for all peers, and do no more in the memory of peers than read scratch; and if the
// later steps of `staged` wait again for each peer whose memory they touch. 0 if not, or if `mapped` sends messages.
// Both plans are of one rank and one call.
StepId SharedBeginning(const Plan& mapped, const Plan& staged);

}  // namespace tutti

#endif  // TUTTI_PLAN_SHARED_BEGINNING_H_
