// The communicators of this process's process groups.
#ifndef TUTTI_TORCH_PROCESS_GROUP_WORLDS_H_
#define TUTTI_TORCH_PROCESS_GROUP_WORLDS_H_

#include <memory>

#include "absl/status/statusor.h"
#include "bindings/torch/process_group/process_group_tutti.h"
#include "tutti/communicator.h"

namespace tutti::dist {

// The communicator of the group that `request` describes. A group inside a default group that runs on Tutti shares the
// engine, the arena and the connections of the default group; any other group connects its members anew. Collective
// over the members. Threads may join different groups at the same time.
absl::StatusOr<std::shared_ptr<Communicator>> JoinGroup(const ProcessGroupTutti::Request& request);

// The same for calls on the GPU of this rank, CommunicatorOptions::cuda_device. A group shares what the default group
// has only where the default group has joined with `shared`, as it does at its beginning, on all ranks: whether it has
// joined later is nothing that the members of another group would know of one another.
absl::StatusOr<std::shared_ptr<Communicator>> JoinGroupOnGpu(const ProcessGroupTutti::Request& request, int gpu,
                                                             bool shared);

}  // namespace tutti::dist

#endif  // TUTTI_TORCH_PROCESS_GROUP_WORLDS_H_
