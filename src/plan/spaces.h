// The places of a call's input and output in the spaces of a plan: what in place means is decided in this file alone.
#ifndef TUTTI_PLAN_SPACES_H_
#define TUTTI_PLAN_SPACES_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "tutti/plan.h"

namespace tutti {

// The whole input and output of `rank`; `spec` must be valid.
Ref InputOf(const CollectiveSpec& spec, Rank rank, int size);
Ref OutputOf(const CollectiveSpec& spec, Rank rank, int size);

// In an all_to_all_v: the block of the input that is for rank `to`, in the input of the rank whose `spec` it is.
Ref BlockOf(const CollectiveSpec& spec, Rank to);

// `plans`, with ranges of blocks (Space::kBlock) put in terms of the inputs in which the blocks lie. The plans have
// passed CheckForm.
std::vector<Plan> WithBlocksLocated(absl::Span<const Plan> plans);

// The bytes of kIn or kOut of `rank`.
std::int64_t SpaceBytes(const CollectiveSpec& spec, Space space, Rank rank, int size);

}  // namespace tutti

#endif  // TUTTI_PLAN_SPACES_H_
