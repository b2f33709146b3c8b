// The communicators of this process's process groups.
#ifndef TUTTI_TORCH_PROCESS_GROUP_WORLDS_H_
#define TUTTI_TORCH_PROCESS_GROUP_WORLDS_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "bindings/torch/process_group/process_group_tutti.h"
#include "tutti/communicator.h"

namespace tutti::dist {

// The store that the groups of the job share, of which `store` adds a prefix to the keys of one group.
c10::intrusive_ptr<::c10d::Store> StoreOfJob(const c10::intrusive_ptr<::c10d::Store>& store);

// The attempt at which this rank has made the default group in which `request` describes a group; "" for the default
// group itself, and where that does not run on Tutti.
std::string AttemptOfDefaultGroup(const ProcessGroupTutti::Request& request);

// The request with a store that groups of other members do not share. Where the members belong to a group that runs on
// Tutti, of which `parent` is the attempt, this also counts in the store how often this rank has begun to make the
// group inside it, and makes that number the request's `attempt`. An attempt has names and keys of its own, so that
// what a failed attempt, or a destroyed group, has left in the store ends no later one. Where ranks are at different
// attempts, the rank that is behind gets an error at once for each attempt that it has missed, and then meets the
// others: see docs/decisions/0040. Where `parent` is "", JoinGroup finds the attempt. Unavailable: the store is lost.
absl::StatusOr<ProcessGroupTutti::Request> OfNextAttempt(ProcessGroupTutti::Request request, const std::string& parent);

// The name of the group that `request` describes, which no other attempt of its ranks has.
std::string NameOfAttempt(const ProcessGroupTutti::Request& request);

// The communicator of the group that `request` describes. A group inside a default group that runs on Tutti shares the
// engine, the arena and the connections of the default group; any other group connects its members anew. Collective
// over the members. Threads may join different groups at the same time. A request without an `attempt` gets that at
// which the members have met.
absl::StatusOr<std::shared_ptr<Communicator>> JoinGroup(ProcessGroupTutti::Request& request);

// The same for calls on the GPU of this rank, CommunicatorOptions::cuda_device. A group shares what the default group
// has only where the default group has joined with `shared`, as it does at its beginning, on all ranks: whether it has
// joined later is nothing that the members of another group would know of one another.
absl::StatusOr<std::shared_ptr<Communicator>> JoinGroupOnGpu(const ProcessGroupTutti::Request& request, int gpu,
                                                             bool shared);

}  // namespace tutti::dist

#endif  // TUTTI_TORCH_PROCESS_GROUP_WORLDS_H_
