// Weights of one model: copied into buckets, exchanged there, and copied back when the model may change. Where plans
// work in place, a weight that has a bucket of its own is exchanged where it lies, without copies.
#ifndef TUTTI_SYNC_WEIGHT_BUCKETS_H_
#define TUTTI_SYNC_WEIGHT_BUCKETS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "sync/buckets.h"
#include "sync/caller.h"
#include "sync/exchange_bucket.h"
#include "tutti/algorithm.h"
#include "tutti/communicator.h"
#include "tutti/synchronizer.h"

namespace tutti {

// The exchange of weights. Used by one thread at a time.
class WeightBuckets {
 public:
  // `communicator`, `memory` and `parameters`, which have weights, must outlive the result.
  static absl::StatusOr<std::unique_ptr<WeightBuckets>> Create(Communicator& communicator, BucketMemory& memory,
                                                               const Strategy& strategy,
                                                               const std::vector<Parameter>& parameters,
                                                               const Layout& layout);
  // Waits for the end of the exchange.
  ~WeightBuckets();

  // Copies the weights into the snapshot.
  void TakeSnapshot();
  // Starts the plans of a round on the snapshot.
  void Launch(int round, std::int64_t step, const CallOptions& call);
  // Waits until every output is final; weights that do not lie in a bucket are untouched. The rest of the round goes
  // on.
  absl::Status FinishOutputs(SyncStatistics& statistics);
  // Waits for the end of the round, until which the snapshot and the replicas belong to the plans. Does nothing when no
  // round is under way. Does not change travels().
  absl::Status Finish(SyncStatistics& statistics);
  // Whether a round was launched whose outputs nobody has waited for.
  bool travels() const { return travels_; }
  // Declares that nobody will wait for the outputs of the round.
  void ForgetOutputs() { travels_ = false; }
  // Replaces the weights by the outputs of the round.
  void Replace();
  // Computes weights ← (what has arrived - the snapshot) + the weights, so that steps made since the snapshot are kept.
  // Computed in this order, a finite weight keeps every bit where what has arrived has the bits of the snapshot: equal
  // weights of 1, 2 or 4 ranks do, but the average of those of 3 ranks may differ from them in its last bit.
  void Correct();
  // Averages the weights over the ranks of `communicator`. Collective; no plan may be under way. When it fails, every
  // weight has its old value or the average. ResourceExhausted, on all ranks, where one has no memory for the sums.
  absl::Status Average(Communicator& communicator, const Caller& caller, const CallOptions& call,
                       SyncStatistics& statistics);
  // Copies the weights, which are equal on all ranks, into all replicas.
  void ResetReplicas();

  std::vector<ExchangeBucket>& buckets() { return buckets_; }
  BucketMemory& memory() { return memory_; }

 private:
  WeightBuckets(BucketMemory& memory, const std::vector<Parameter>& parameters, const Layout& layout)
      : memory_(memory), parameters_(parameters), layout_(layout) {}

  // Copies unless the bucket lies at the weights themselves.
  void Copy(void* to, const void* from, std::int64_t bytes) {
    if (to != from) memory_.Copy(to, from, bytes);
  }

  // Calls visit(parameter, its first byte in the bucket, its bytes) for the parameters of bucket `b`.
  template <typename Visit>
  void ForEach(std::size_t b, Visit visit);
  // Gather copies the weights of bucket `b` to memory as long as the bucket; Scatter copies them back from there.
  void Gather(std::size_t b, std::byte* to);
  void Scatter(std::size_t b, const std::byte* from);

  BucketMemory& memory_;
  const std::vector<Parameter>& parameters_;
  const Layout layout_;
  std::vector<ExchangeBucket> buckets_;
  bool travels_ = false;
  bool runs_ = false;  // the last round has perhaps not ended
};

}  // namespace tutti

#endif  // TUTTI_SYNC_WEIGHT_BUCKETS_H_
