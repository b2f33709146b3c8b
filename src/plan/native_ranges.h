// The memory that a native step works in.
#ifndef TUTTI_PLAN_NATIVE_RANGES_H_
#define TUTTI_PLAN_NATIVE_RANGES_H_

#include <string>

#include "tutti/plan.h"

namespace tutti {

// The reason why the rank at `place` among `size` ranks cannot give `in` to the native call `spec` and take `out` from
// it; empty when it can. A rank that gives or takes nothing has a range of no bytes. The spec is valid.
std::string NativeRangeFault(const CollectiveSpec& spec, Rank place, int size, const Ref& in, const Ref& out);

}  // namespace tutti

#endif  // TUTTI_PLAN_NATIVE_RANGES_H_
