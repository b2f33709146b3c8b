// The gradients of one model: autograd writes them into buckets, which leave while backward still runs.
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
#include "tutti/buffer.h"
#include "tutti/communicator.h"
#include "tutti/synchronizer.h"
#include "tutti/work.h"

namespace tutti {

// The exchange of gradients. Its calls for a backward, and their errors, are those of Synchronizer.
class GradientExchange {
 public:
  // `communicator` and `parameters` must outlive the result.
  static absl::StatusOr<std::unique_ptr<GradientExchange>> Create(Communicator& communicator, const Strategy& strategy,
                                                                  const std::vector<Parameter>& parameters,
                                                                  const Layout& layout, bool allow_unused);
  ~GradientExchange();

  std::shared_ptr<void> View(int i) const;
  // Begins a backward. `synchronize`: false when gradients are only accumulated. `momentum`: the source of what is
  // exchanged in place of gradients, which also chooses the round; null: gradients are exchanged, which have one round.
  // `call` holds the caller's options.
  absl::Status Begin(bool synchronize, std::int64_t step, MomentumSource* momentum, const CallOptions& call);
  void MarkReady(int i);
  std::vector<int> Missing() const;
  absl::Status Finish(SyncStatistics& statistics);
  absl::Status Cancel();
  void Zero();

  bool in_step() const { return in_step_; }
  // Whether buckets of the backward under way have left.
  bool has_launched() const { return in_step_ && synchronizing_ && ready_.launched() > 0; }
  bool used(int i) const { return used_.data() == nullptr || used_.as<std::uint8_t>()[i] != 0; }
  bool synchronizing() const { return synchronizing_; }
  std::vector<ExchangeBucket>& buckets() { return buckets_; }

 private:
  GradientExchange(Communicator& communicator, const Strategy& strategy, const std::vector<Parameter>& parameters,
                   const Layout& layout, bool allow_unused);
  absl::Status CheckStep(absl::Span<const int> missing) const;
  absl::Status Fail(const absl::Status& mistake);
  Work AgreeOnUsed(absl::Span<const int> missing);

  Communicator& communicator_;
  const std::vector<Parameter>& parameters_;
  const std::vector<GradientPlace> places_;
  const bool allow_unused_;
  const bool sums_;  // the strategy adds gradients up and does not divide
  Buffer used_;      // one byte per parameter; empty unless allow_unused
  std::vector<ExchangeBucket> buckets_;
  ReadyCounters ready_;
  std::atomic<int> marked_twice_{-1};
  MomentumSource* momentum_ = nullptr;
  std::int64_t step_ = 0;
  int round_ = 0;
  CallOptions call_;
  bool synchronizing_ = false;  // the backward under way synchronizes
  bool holds_sums_ = false;     // views may hold the sums that the last exchange left there
  bool in_step_ = false;
};

}  // namespace tutti

#endif  // TUTTI_SYNC_GRADIENT_EXCHANGE_H_
