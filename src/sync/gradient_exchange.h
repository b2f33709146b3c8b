// Gradients of one model: buckets that autograd writes into and that leave while backward still runs.
#ifndef TUTTI_SYNC_GRADIENT_EXCHANGE_H_
#define TUTTI_SYNC_GRADIENT_EXCHANGE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "sync/buckets.h"
#include "sync/exchange_bucket.h"
#include "sync/ready_counters.h"
#include "tutti/algorithm.h"
#include "tutti/communicator.h"
#include "tutti/synchronizer.h"

namespace tutti {

// The calls of a backward and their errors are those of Synchronizer.
class GradientExchange {
 public:
  // `communicator` and `parameters` must outlive the result.
  static absl::StatusOr<std::unique_ptr<GradientExchange>> Create(Communicator& communicator, const Strategy& strategy,
                                                                  const std::vector<Parameter>& parameters,
                                                                  const Layout& layout, bool allow_unused);
  ~GradientExchange();

  std::shared_ptr<void> View(int i) const;
  // `synchronize`: false when gradients are only accumulated. `momentum`: what is exchanged in place of gradients in
  // this step and chooses the round of the plans; null: gradients, which have one round.
  absl::Status Begin(bool synchronize, std::int64_t step, MomentumSource* momentum);
  void MarkReady(int i);
  std::vector<int> Missing() const;
  absl::Status Finish(SyncStatistics& statistics);
  void Zero();

  bool synchronizing() const { return synchronizing_; }
  std::vector<ExchangeBucket>& buckets() { return buckets_; }

 private:
  GradientExchange(Communicator& communicator, const std::vector<Parameter>& parameters, const Layout& layout,
                   bool allow_unused);
  absl::Status CheckStep(absl::Span<const int> missing) const;
  absl::Status Fail(const absl::Status& mistake);

  Communicator& communicator_;
  const std::vector<Parameter>& parameters_;
  const std::vector<GradientPlace> places_;
  const bool allow_unused_;
  std::vector<ExchangeBucket> buckets_;
  ReadyCounters ready_;
  std::atomic<int> marked_twice_{-1};
  MomentumSource* momentum_ = nullptr;
  std::int64_t step_ = 0;
  int round_ = 0;
  bool synchronizing_ = false;  // in this step
  bool in_step_ = false;
};

}  // namespace tutti

#endif  // TUTTI_SYNC_GRADIENT_EXCHANGE_H_
