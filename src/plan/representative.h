// The call that stands for others when a schedule is chosen.
#ifndef TUTTI_PLAN_REPRESENTATIVE_H_
#define TUTTI_PLAN_REPRESENTATIVE_H_

#include "tutti/collective.h"

namespace tutti {

// The call that is looked at in place of `spec`: without what only some ranks know, such as the counts of an
// all_to_all_v, in whose place stand blocks of 64 KiB. A function of what all ranks know: all ranks choose alike.
CollectiveSpec Representative(const CollectiveSpec& spec, int size);

}  // namespace tutti

#endif  // TUTTI_PLAN_REPRESENTATIVE_H_
