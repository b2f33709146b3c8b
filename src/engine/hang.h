// Who is to blame when a rank has waited too long.
#ifndef TUTTI_ENGINE_HANG_H_
#define TUTTI_ENGINE_HANG_H_

#include "absl/types/span.h"
#include "engine/control_block.h"
#include "tutti/dtype.h"

namespace tutti {

// Follows who waits for whom, from the rank that `self` waits for to one that does not wait (it has not made the call)
// or whose heartbeat has stopped (it is stopped or dead). Ends at the last rank whose state is visible: an unmapped
// rank is named for want of better knowledge.
Rank FindStalledRank(absl::Span<Presence* const> presence, Rank self, Rank direct);

}  // namespace tutti

#endif  // TUTTI_ENGINE_HANG_H_
