// The gradients of one model: autograd writes them into buckets, which leave while backward still runs.
#ifndef TUTTI_SYNC_GRADIENT_EXCHANGE_H_
#define TUTTI_SYNC_GRADIENT_EXCHANGE_H_

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "sync/buckets.h"
#include "sync/exchange.h"
#include "sync/exchange_bucket.h"
#include "sync/ready_counters.h"
#include "tutti/buffer.h"
#include "tutti/work.h"

namespace tutti {

class GradientExchange : public Exchange {
 public:
  // Takes the memory of the buckets. Not collective: the caller then asks whether all ranks have got theirs
  // (AgreeOnMemory). `strategy` is that of `context`, or of its warm-up.
  static absl::StatusOr<std::unique_ptr<GradientExchange>> Create(SyncContext& context, const Strategy& strategy,
                                                                  const Layout& layout, bool allow_unused);
  ~GradientExchange() override;

  bool exchanges_gradients() const override { return true; }
  std::shared_ptr<void> GradientView(int i) const override;
  absl::Status BeginBackward() override { return Begin(context_.synchronize, context_.momentum); }
  void MarkReady(int i, void* stream) override;
  std::vector<int> MissingGradients() const override;
  absl::Status FinishBackward() override;
  bool used(int i) const override { return used_.data() == nullptr || used_.as<std::uint8_t>()[i] != 0; }
  absl::Status CancelBackward() override;
  void ZeroGradients() override;
  absl::Status SetLossScale(double scale) override;
  absl::Status BeforeStep() override { return context_.communicator.status(); }
  absl::Status AfterStep() override;
  absl::Status Flush() override { return context_.communicator.status(); }
  absl::Status Restart() override;
  absl::StatusOr<absl::Span<ExchangeBucket>> BucketsToSave() override;
  absl::Span<ExchangeBucket> BucketsToLoad() override;
  absl::Status EndLoad(bool same_world) override;

  // Begins a backward. `synchronize`: false when gradients are only accumulated. `momentum`: the source of what is
  // exchanged in place of gradients, which also chooses the round; null: gradients are exchanged, which have one round.
  absl::Status Begin(bool synchronize, MomentumSource* momentum);
  // Finishes a backward without counting a step.
  absl::Status Finish();
  // Takes over the gradients of `former`, an exchange of the same parameters in other buckets, and what is known of
  // them. Between backwards, before the first one of this exchange.
  void TakeOver(const GradientExchange& former);

 protected:
  GradientExchange(SyncContext& context, const Strategy& strategy, const Layout& layout, bool allow_unused);
  absl::Status MakeMemory(const Strategy& strategy, const Layout& layout);

 private:
  // Whether buckets of the backward under way have left.
  bool has_launched() const { return in_step_ && synchronizing_ && ready_.launched() > 0; }
  absl::Status CheckStep(absl::Span<const int> missing) const;
  void Launch(int b);
  // Waits for the buckets of the last backward, which on a GPU only the stream has waited for.
  absl::Status FinishOnDevice();
  // Waits for the buckets of the last backward that use states.
  absl::Status FinishStates();
  absl::Status Fail(const absl::Status& mistake);
  Work AgreeOnUsed(absl::Span<const int> missing);

  const std::vector<GradientPlace> places_;
  const bool allow_unused_;
  const bool sums_;  // the strategy adds gradients up and does not divide
  Buffer used_;      // one byte per parameter; empty unless allow_unused
  std::vector<ExchangeBucket> buckets_;
  const std::vector<BucketLayout> layout_;
  // By parameter: the stream on which its gradient is computed in the backward under way, in memory of a GPU.
  std::vector<std::atomic<void*>> streams_;
  void* begin_stream_ = nullptr;  // what Begin and Restart have written to buckets and states is on this stream
  ReadyCounters ready_;
  // The last mark of the backward under way that was a mistake: the number of a parameter that was marked already, or a
  // number that no parameter has.
  static constexpr std::int64_t kNoMark = std::numeric_limits<std::int64_t>::min();
  std::atomic<std::int64_t> wrong_mark_{kNoMark};
  MomentumSource* momentum_ = nullptr;
  std::int64_t step_ = 0;
  int round_ = 0;
  CallOptions call_;
  bool synchronizing_ = false;  // the backward under way synchronizes
  bool holds_sums_ = false;     // views may hold the sums that the last exchange left there
  bool in_step_ = false;
  bool exchanged_ = false;  // gradients were exchanged since the optimizer's last step
  absl::Status failed_;     // the error with which the last exchange ended
};

// Momentum, which the algorithm's own optimizer makes of gradients just before they leave.
class MomentumExchange final : public GradientExchange {
 public:
  static absl::StatusOr<std::unique_ptr<MomentumExchange>> Create(SyncContext& context, const Layout& layout,
                                                                  bool allow_unused);

  absl::Status BeginBackward() override;
  absl::Status SetLossScale(double scale) override;

 private:
  using GradientExchange::GradientExchange;
};

}  // namespace tutti

#endif  // TUTTI_SYNC_GRADIENT_EXCHANGE_H_
