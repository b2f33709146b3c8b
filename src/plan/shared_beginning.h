// The beginning that two plans of one call share.
#ifndef TUTTI_PLAN_SHARED_BEGINNING_H_
#define TUTTI_PLAN_SHARED_BEGINNING_H_

#include "tutti/plan.h"

namespace tutti {

// The number of steps with which both `mapped` and `staged` begin, if these steps let a rank decide which of the two
// plans it goes on with: they wait for all peers, and touch no memory of peers but scratch. 0 if they do not, or if
// `mapped` sends messages. Both plans are of one rank and one call.
StepId SharedBeginning(const Plan& mapped, const Plan& staged);

}  // namespace tutti

#endif  // TUTTI_PLAN_SHARED_BEGINNING_H_
