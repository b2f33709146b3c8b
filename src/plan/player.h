// The simulation of plans on a machine that a few numbers describe.
#ifndef TUTTI_PLAN_PLAYER_H_
#define TUTTI_PLAN_PLAYER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "tutti/cost_model.h"
#include "tutti/plan.h"

namespace tutti {

// Whether the step works in memory, as a reduction and a copy do, and how many bytes the step then reads and writes.
bool Computes(const Step& step);
std::int64_t TouchedBytes(const Plan& plan, const Step& step);
// The bytes among these that lie in scratch.
std::int64_t ScratchBytes(const Plan& plan, const Step& step);

// The seconds from the common start of `plans` until the last of their steps ends. A step starts as soon as its
// dependencies, its message or its signal is there and its rank has time for the step. `nodes` is the node of each rank
// of the world; empty: see CostModel::ranks_per_node.
//
// `plans` may be those of some ranks only, each once. A peer without a plan is taken to do what the rank that waits for
// the peer does itself at that point: a message that comes before this rank has sent anything leaves at the start; of
// the later ones, whoever sends them, the k-th leaves when this rank's own k-th message does (or the last that this
// rank sends before that Recv), and a signal is made when this rank makes the corresponding one. For schedules in which
// all ranks do the same, such as a ring, one plan is enough.
//
// A native collective begins when all its ranks that have plans have come to it, and takes the time of the model; where
// the model has none, it never ends, and the time is infinite (see CheckPredicted).
//
// The form of the plans must be valid, and CheckNodes OK. Steps that wait for each other in a circle never end, and do
// not count.
double Play(absl::Span<const Plan> plans, absl::Span<const int> nodes, const CostModel& model);

// InvalidArgument unless `nodes` is empty or has the node of each rank of the world of `plans`.
absl::Status CheckNodes(absl::Span<const Plan> plans, absl::Span<const int> nodes);

// OK, or FailedPrecondition for the infinite time of plans with native steps of which the model says nothing.
absl::Status CheckPredicted(double seconds);

}  // namespace tutti

#endif  // TUTTI_PLAN_PLAYER_H_
