// Parameters that travel together, with the plans that move them and all the memory these need.
#ifndef TUTTI_SYNC_EXCHANGE_BUCKET_H_
#define TUTTI_SYNC_EXCHANGE_BUCKET_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "sync/buckets.h"
#include "tutti/algorithm.h"
#include "tutti/buffer.h"
#include "tutti/communicator.h"
#include "tutti/plan.h"
#include "tutti/synchronizer.h"

namespace tutti {

// Nothing is allocated or looked up after creation.
class ExchangeBucket {
 public:
  // One bound plan per round of the strategy. `communicator` must outlive the result. `index`: of the bucket. `place`:
  // where plans that work in place shall do so, and outlives the result; nullptr: in memory of the bucket's own.
  static absl::StatusOr<ExchangeBucket> Create(Communicator& communicator, const Strategy& strategy,
                                               const BucketLayout& layout, int index, void* place = nullptr);

  // Starts the plan of a round; the last run must have ended. With the index, `step` names the random numbers: a
  // training that goes on from a checkpoint rounds as it would have done.
  void Launch(int round, std::int64_t step);
  // Waits until out() is final and adds what has been or will be sent to `statistics`; in() and the states are still
  // the plan's.
  absl::Status FinishOutput(SyncStatistics& statistics);
  // Waits for its end and adds what it did to `statistics`.
  absl::Status Finish(SyncStatistics& statistics);

  // What the plans read and what becomes of it; one memory where they work in place.
  std::byte* in() const { return in_.data() != nullptr ? in_.data() : out_; }
  std::byte* out() const { return out_; }
  // That of out(), unless it has a place of its own.
  const std::shared_ptr<Buffer>& memory() const { return memory_; }
  std::int64_t count() const { return count_; }  // elements
  const std::vector<StateRange>& states() const { return states_; }
  std::byte* AddressOf(const StateRange& state) const { return state_.data() + state.range.offset; }

 private:
  int index_ = 0;
  bool background_ = false;  // see CallOptions
  std::int64_t count_ = 0;
  Buffer in_;
  std::shared_ptr<Buffer> memory_;
  std::byte* out_ = nullptr;
  std::int64_t out_bytes_ = 0;
  Buffer state_;
  Buffer scratch_;  // of plans over messages, which never run at the same time
  std::vector<StateRange> states_;
  std::vector<BoundPlan> rounds_;
  Work work_;
  bool counted_ = true;  // what it sends
  std::int64_t launched_ns_ = 0;
};

// One for each of `layout`; `places`: of each, or of none.
absl::StatusOr<std::vector<ExchangeBucket>> MakeBuckets(Communicator& communicator, const Strategy& strategy,
                                                        absl::Span<const BucketLayout> layout,
                                                        absl::Span<void* const> places = {});
// Waits for all outputs, or the end of all, also when one has failed; the first error. Adds the wait to `statistics`
// too.
absl::Status FinishOutputs(absl::Span<ExchangeBucket> buckets, SyncStatistics& statistics);
absl::Status FinishAll(absl::Span<ExchangeBucket> buckets, SyncStatistics& statistics);

}  // namespace tutti

#endif  // TUTTI_SYNC_EXCHANGE_BUCKET_H_
