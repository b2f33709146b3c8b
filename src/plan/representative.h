// The call that stands for others when a schedule is chosen.
#ifndef TUTTI_PLAN_REPRESENTATIVE_H_
#define TUTTI_PLAN_REPRESENTATIVE_H_

#include "tutti/collective.h"

namespace tutti {

// The call for which schedules are compared in place of `spec`: it leaves out what only some ranks know, such as the
// counts of an all_to_all_v, in whose place it has blocks of 64 KiB. All ranks get the same call, and so choose alike.
CollectiveSpec Representative(const CollectiveSpec& spec, int size);

}  // namespace tutti

#endif  // TUTTI_PLAN_REPRESENTATIVE_H_
