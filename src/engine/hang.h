// Who is to blame when a rank has waited too long.
#ifndef TUTTI_ENGINE_HANG_H_
#define TUTTI_ENGINE_HANG_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "engine/control_block.h"
#include "tutti/dtype.h"

namespace tutti {

// Follows who waits for whom, from `direct`, for which `self` waits, to a rank that waits for nobody as far as
// `waits_for` knows: such a rank has not made the call, or is stopped or dead. nullopt in a circle of ranks that wait
// for each other, or for `self`. A rank that `waits_for` names need not be of the world of `size`. Allocates nothing.
std::optional<Rank> FindStalledRank(int size, Rank self, Rank direct,
                                    absl::FunctionRef<std::optional<Rank>(Rank)> waits_for);

// For whom the owner of `presence` waits; nullopt when it does not wait, or its heartbeat has stopped.
std::optional<Rank> WaitsFor(const Presence& presence, std::int64_t now_ns);

// "rank 3 has left (…)", for an error about a call that `world_rank` has left without.
std::string TextOfLeaver(Rank world_rank);

}  // namespace tutti

#endif  // TUTTI_ENGINE_HANG_H_
