// One bucket: parameters that travel together, with the plans that move them and all the memory that these plans need.
#ifndef TUTTI_SYNC_EXCHANGE_BUCKET_H_
#define TUTTI_SYNC_EXCHANGE_BUCKET_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "sync/bucket_memory.h"
#include "sync/buckets.h"
#include "tutti/algorithm.h"
#include "tutti/buffer.h"
#include "tutti/communicator.h"
#include "tutti/plan.h"
#include "tutti/synchronizer.h"

namespace tutti {

// A bucket with its bound plans. A run allocates nothing and looks nothing up.
class ExchangeBucket {
 public:
  // Binds one plan per round of the strategy. `communicator` and `memory` must outlive the result. `index` is the
  // number of the bucket. `place`, which must outlive the result, is the memory on which plans that work in place run;
  // nullptr: memory of the bucket's own.
  static absl::StatusOr<ExchangeBucket> Create(Communicator& communicator, BucketMemory& memory,
                                               const Strategy& strategy, const BucketLayout& layout, int index,
                                               void* place = nullptr);

  // Starts the plan of a round; the last run must have ended. A round that there is not fails at once, on every rank
  // that names it: algorithms name the same round on all ranks. `step` and the bucket's index name the run's random
  // numbers, so that a training that resumes from a checkpoint rounds as it would have without the break. `call` holds
  // the caller's options.
  void Launch(int round, std::int64_t step, const CallOptions& call) { work_ = Start(round, step, call); }
  // Does what Launch does with the one round of a bucket of gradients, and returns the Work of the run for the caller
  // to wait for. After a refusal, Finish and runs() are still about the run before.
  Work LaunchShared(std::int64_t step, const CallOptions& call);
  // Why the last of these two calls has started no run: InvalidArgument, of this rank alone, such as a stream of
  // another GPU; OK: a run was started.
  const absl::Status& refusal() const { return refusal_; }
  // Waits until out() is final and adds the run's traffic to `statistics`; in() and the states still belong to the
  // plan. On a GPU the stream of the memory waits, and not the caller.
  absl::Status FinishOutput(SyncStatistics& statistics);
  // Waits for the end of the run and adds its traffic and duration to `statistics`.
  absl::Status Finish(SyncStatistics& statistics);

  // Names the memory on which plans that work in place run from now on, for a bucket that was given a `place`; it must
  // outlive its use. Errors: see BoundPlan::Rebind.
  absl::Status MoveTo(void* place);
  // Waits for the end of the last run, at most until `deadline`; false when the run is then still under way.
  bool EndsBy(absl::Time deadline) {
    (void)work_.Wait(deadline);
    return work_.done();
  }
  // Whether the last run is still under way.
  bool runs() const { return !work_.done(); }

  // Multiply the residuals by `factor` and by 0. No run may be under way.
  absl::Status ScaleResiduals(double factor);
  void ZeroResiduals() const;

  // The memory that plans read, and the memory of their result; both are one where plans work in place.
  std::byte* in() const { return in_.data() != nullptr ? in_.data() : out_; }
  std::byte* out() const { return out_; }
  // The memory behind out(), unless the bucket was given a `place`.
  const std::shared_ptr<Buffer>& memory() const { return memory_; }
  std::int64_t count() const { return count_; }  // elements
  const std::vector<StateRange>& states() const { return states_; }
  std::byte* AddressOf(const StateRange& state) const { return state_.data() + state.range.offset; }
  // All states, in the memory of where(); for the host see states_on_host.h.
  absl::Span<std::byte> state_memory() const { return state_.as<std::byte>(); }
  BucketMemory& where() const { return *where_; }

 private:
  Work Start(int round, std::int64_t step, const CallOptions& call);
  // `status` of the last run; where a peer did not come in time, the text also says what the training waited for.
  absl::Status Explained(absl::Status status) const;
  void CountTraffic(SyncStatistics& statistics);

  absl::string_view algorithm_;  // its name
  int index_ = 0;
  std::string names_;        // BucketLayout::names
  std::int64_t step_ = 0;    // the optimizer step of the last run
  bool background_ = false;  // the strategy works in the background: see CallOptions
  std::int64_t count_ = 0;
  Buffer in_;
  std::shared_ptr<Buffer> memory_;
  std::byte* out_ = nullptr;
  std::int64_t out_bytes_ = 0;
  BucketMemory* where_ = nullptr;
  Buffer state_;
  Buffer scratch_;  // scratch of plans over messages, which never run at the same time
  std::vector<StateRange> states_;
  std::vector<BoundPlan> rounds_;
  Work work_;
  absl::Status refusal_;
  bool counted_ = true;           // the traffic of the last run is in the statistics
  std::int64_t launched_ns_ = 0;  // 0: the duration of the last run is in the statistics
};

// Makes one bucket for each of `layout`; `places` holds a place for each bucket, or nothing.
absl::StatusOr<std::vector<ExchangeBucket>> MakeBuckets(Communicator& communicator, BucketMemory& memory,
                                                        const Strategy& strategy, absl::Span<const BucketLayout> layout,
                                                        absl::Span<void* const> places = {});
// FinishOutputs waits for the outputs of all buckets, FinishAll for the ends of their runs. Both functions also wait
// for the other buckets when one has failed, return the first error, and add the time of the wait to `statistics`.
absl::Status FinishOutputs(absl::Span<ExchangeBucket> buckets, SyncStatistics& statistics);
absl::Status FinishAll(absl::Span<ExchangeBucket> buckets, SyncStatistics& statistics);

}  // namespace tutti

#endif  // TUTTI_SYNC_EXCHANGE_BUCKET_H_
