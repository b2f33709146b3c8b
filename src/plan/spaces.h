// Where the input and output of a call lie in the spaces of a plan: the one place that knows what in place means.
#ifndef TUTTI_PLAN_SPACES_H_
#define TUTTI_PLAN_SPACES_H_

#include <cstdint>

#include "tutti/plan.h"

namespace tutti {

// The whole input and output of `rank`; `spec` is valid.
Ref InputOf(const CollectiveSpec& spec, Rank rank, int size);
Ref OutputOf(const CollectiveSpec& spec, Rank rank, int size);

// Bytes of kIn or kOut of `rank`.
std::int64_t SpaceBytes(const CollectiveSpec& spec, Space space, Rank rank, int size);

}  // namespace tutti

#endif  // TUTTI_PLAN_SPACES_H_
