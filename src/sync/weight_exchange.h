// Weights that all ranks exchange in step: while forward and backward run, or after the optimizer's step.
#ifndef TUTTI_SYNC_WEIGHT_EXCHANGE_H_
#define TUTTI_SYNC_WEIGHT_EXCHANGE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "sync/buckets.h"
#include "sync/exchange.h"
#include "sync/weight_buckets.h"
#include "tutti/algorithm.h"

namespace tutti {

class WeightExchange final : public Exchange {
 public:
  static absl::StatusOr<std::unique_ptr<WeightExchange>> Create(SyncContext& context, const Layout& layout);
  // Aborts the communicator where an exchange has begun that no step has taken: peers would wait for this rank's next.
  ~WeightExchange() override;

  absl::Status SetLossScale(double scale) override;
  absl::Status BeginForward() override;
  absl::Status BeforeStep() override;
  absl::Status AfterStep() override;
  absl::Status Flush() override;
  absl::Status Restart() override;
  absl::StatusOr<absl::Span<ExchangeBucket>> BucketsToSave() override;
  absl::Span<ExchangeBucket> BucketsToLoad() override;
  absl::Status EndLoad(bool same_world) override;

 private:
  WeightExchange(SyncContext& context, std::unique_ptr<WeightBuckets> weights);

  // Gives all ranks the average of their weights, and keeps the error.
  absl::Status Average();
  // Copies the weights into the replicas, unless the replicas are set. The error of the last average, or of the
  // communicator, if there is one: the weights of peers, whose replicas these would be, may then be others.
  absl::Status MakeReplicas();
  // Waits for the end of the exchange that is under way, if any, and keeps its error.
  absl::Status Finish();
  // Waits for the end of the last exchange and begins this step's, if this step has one.
  absl::Status Launch();
  // Copies the weights that have arrived over the present ones, if an exchange is under way.
  absl::Status Arrive();
  // Forgets the forward that has begun, and the outputs of its exchange.
  void ForgetBegun();

  const std::unique_ptr<WeightBuckets> weights_;
  const RoundOfStep round_of_;
  bool in_forward_ = false;
  bool replicas_are_set_ = false;
  // The error of the last exchange, which has left replicas in the middle of a round or weights that differ. OK again
  // once another exchange begins, or a state is loaded.
  absl::Status failed_;
};

}  // namespace tutti

#endif  // TUTTI_SYNC_WEIGHT_EXCHANGE_H_
