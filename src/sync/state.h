// Equal memory on all ranks: the start of every training.
#ifndef TUTTI_SYNC_STATE_H_
#define TUTTI_SYNC_STATE_H_

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "tutti/communicator.h"
#include "tutti/synchronizer.h"

namespace tutti {

// See Synchronizer::BroadcastState and CheckState. Collective.
absl::Status BroadcastState(Communicator& communicator, absl::Span<const StateMemory> memory);
absl::Status CheckState(Communicator& communicator, absl::Span<const StateMemory> memory);

}  // namespace tutti

#endif  // TUTTI_SYNC_STATE_H_
