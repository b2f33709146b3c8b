// Weights of one model: copied into buckets, exchanged there, and copied back when the model may change. Where plans
// work in place, a weight that has a bucket of its own is exchanged where it lies; both copies are then nothing.
#ifndef TUTTI_SYNC_WEIGHT_EXCHANGE_H_
#define TUTTI_SYNC_WEIGHT_EXCHANGE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "sync/buckets.h"
#include "sync/exchange_bucket.h"
#include "tutti/algorithm.h"
#include "tutti/communicator.h"
#include "tutti/synchronizer.h"

namespace tutti {

// Used by one thread at a time.
class WeightExchange {
 public:
  // `communicator` and `parameters`, which have weights, must outlive the result.
  static absl::StatusOr<std::unique_ptr<WeightExchange>> Create(Communicator& communicator, const Strategy& strategy,
                                                                const std::vector<Parameter>& parameters,
                                                                const Layout& layout);
  // Ends an exchange whose outputs nobody has waited for, for the peers too.
  ~WeightExchange();

  // The snapshot ← the weights.
  void TakeSnapshot();
  // Starts the plans of a round, from the snapshot.
  void Launch(int round, std::int64_t step);
  // Waits until every output is final; weights that have a place elsewhere are untouched. The rest of the round goes
  // on.
  absl::Status FinishOutputs(SyncStatistics& statistics);
  // Waits for the end of the round, before which the snapshot and the replicas are not this thread's. Nothing happens
  // when none is under way. Outputs that were not waited for stay to be.
  absl::Status Finish(SyncStatistics& statistics);
  // A round was launched and its outputs were not waited for.
  bool travels() const { return travels_; }
  // They never will be.
  void ForgetOutputs() { travels_ = false; }
  // The weights ← what has arrived.
  void Replace();
  // The weights ← (what has arrived - the snapshot) + the weights: steps made since the snapshot are kept. In this
  // order a weight on which all ranks agree keeps its last bit.
  void Correct();
  // The weights ← their average over the ranks of `communicator`. Collective; no plan may be under way. When it fails,
  // every weight has its old value or the average.
  absl::Status Average(Communicator& communicator, SyncStatistics& statistics);
  // All replicas ← the weights, which are equal on all ranks.
  void ResetReplicas();

  std::vector<ExchangeBucket>& buckets() { return buckets_; }

 private:
  WeightExchange(Communicator& communicator, const std::vector<Parameter>& parameters, const Layout& layout)
      : communicator_(communicator), parameters_(parameters), layout_(layout) {}

  // Calls visit(parameter, its first byte in the bucket, its bytes) for the parameters of bucket `b`.
  template <typename Visit>
  void ForEach(std::size_t b, Visit visit);
  // The weights of bucket `b`, to memory as long as the bucket, or from there.
  void Gather(std::size_t b, std::byte* to);
  void Scatter(std::size_t b, const std::byte* from);

  Communicator& communicator_;
  const std::vector<Parameter>& parameters_;
  const Layout layout_;
  std::vector<ExchangeBucket> buckets_;
  bool travels_ = false;
  bool runs_ = false;  // the last round has perhaps not ended
};

}  // namespace tutti

#endif  // TUTTI_SYNC_WEIGHT_EXCHANGE_H_
