// What a synchronizer and its exchange share.
#ifndef TUTTI_SYNC_SYNC_CONTEXT_H_
#define TUTTI_SYNC_SYNC_CONTEXT_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "sync/bucket_memory.h"
#include "sync/caller.h"
#include "tutti/algorithm.h"
#include "tutti/communicator.h"
#include "tutti/synchronizer.h"
#include "tutti/tuning.h"

namespace tutti {

// The settings and counters of one synchronizer, for the thread that calls this synchronizer.
struct SyncContext {
  Communicator& communicator;
  const std::unique_ptr<BucketMemory> memory;
  const Caller caller;
  const std::vector<Parameter> parameters;
  const Strategy strategy;
  const std::vector<Rank> participants;

  bool synchronize = true;
  MomentumSource* momentum = nullptr;
  double loss_scale = 1;
  std::int64_t step = 0;
  // The number, from 1, of the step that comes or is under way, which ranks compare in their calls. `round` counts more
  // than `step`: also optimizer steps before which this rank, if not its peers, exchanged no gradients, and 10⁹ for
  // each backward that was given up when buckets had left. So a rank that repeats a step never meets a rank that goes
  // on.
  std::uint64_t round = 1;
  // The last step mixed weights with those of some peers, and no Flush came after it, or a state was loaded that may be
  // of such a moment: replicas may differ by design.
  bool replicas_differ = false;
  SyncStatistics statistics = {};
  int bucket_count = 0;
  std::int64_t moves = 0;  // how often gradients were given other memory
  TuningReport tuning = {};

  bool has_parameter(int i) const { return i >= 0 && i < static_cast<int>(parameters.size()); }
  // Passes the result of an exchange on. An error of this rank alone, as of its GPU, ends the communicator, because it
  // would leave this rank a step behind its peers. Refusals (InvalidArgument, ResourceExhausted) are those of all
  // ranks.
  absl::Status OrAbort(absl::Status status) const {
    const bool refused = absl::IsInvalidArgument(status) || absl::IsResourceExhausted(status);
    if (!status.ok() && !refused) communicator.Abort(status);
    return status;
  }
  void EndStep() {
    ++step;
    ++round;
    ++statistics.steps;
  }
};

}  // namespace tutti

#endif  // TUTTI_SYNC_SYNC_CONTEXT_H_
