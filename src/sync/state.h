// Broadcast and comparison of memory that must be equal on all ranks, as at the start of every training.
#ifndef TUTTI_SYNC_STATE_H_
#define TUTTI_SYNC_STATE_H_

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "sync/bucket_memory.h"
#include "tutti/communicator.h"
#include "tutti/synchronizer.h"

namespace tutti {

// See Synchronizer::BroadcastState and CheckState. `where`: the memory of the ranges; that of a GPU also stands for
// ranges of the host. `call` holds the options of all calls that both make. Collective.
absl::Status BroadcastState(Communicator& communicator, BucketMemory& where, absl::Span<const StateMemory> memory,
                            const CallOptions& call);
absl::Status CheckState(Communicator& communicator, BucketMemory& where, absl::Span<const StateMemory> memory,
                        const CallOptions& call);

}  // namespace tutti

#endif  // TUTTI_SYNC_STATE_H_
