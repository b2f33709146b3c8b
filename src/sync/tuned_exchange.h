// Gradients whose buckets are made anew while the training runs, until the fastest way of moving them is known.
#ifndef TUTTI_SYNC_TUNED_EXCHANGE_H_
#define TUTTI_SYNC_TUNED_EXCHANGE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "sync/exchange.h"
#include "sync/gradient_exchange.h"
#include "sync/tuner.h"
#include "sync/tuning_space.h"

namespace tutti {

// A GradientExchange that is replaced at the beginning of some of the first backwards.
class TunedExchange final : public Exchange {
 public:
  // The number of backwards for one trial: the first ones, which fill memory and caches, do not count.
  static constexpr int kUntimed = 1;
  static constexpr int kTimed = 4;
  static constexpr int kUntimedAtStart = 3;

  // Begins with the exchange of `layout`, which is that of the start of `space`. Not collective: see GradientExchange.
  static absl::StatusOr<std::unique_ptr<TunedExchange>> Create(SyncContext& context, const Layout& layout,
                                                               const TuningSpace& space, bool allow_unused);

  bool exchanges_gradients() const override { return true; }
  std::shared_ptr<void> GradientView(int i) const override { return exchange_->GradientView(i); }
  absl::Status BeginBackward() override;
  void MarkReady(int i, void* stream) override { exchange_->MarkReady(i, stream); }
  std::vector<int> MissingGradients() const override { return exchange_->MissingGradients(); }
  absl::Status FinishBackward() override;
  bool used(int i) const override { return exchange_->used(i); }
  absl::Status CancelBackward() override { return exchange_->CancelBackward(); }
  void ZeroGradients() override { exchange_->ZeroGradients(); }
  absl::Status SetLossScale(double scale) override { return exchange_->SetLossScale(scale); }
  absl::Status BeforeStep() override { return exchange_->BeforeStep(); }
  absl::Status AfterStep() override { return exchange_->AfterStep(); }
  absl::Status Flush() override { return exchange_->Flush(); }
  absl::Status Restart() override { return exchange_->Restart(); }
  absl::StatusOr<absl::Span<ExchangeBucket>> BucketsToSave() override { return exchange_->BucketsToSave(); }
  absl::Span<ExchangeBucket> BucketsToLoad() override { return exchange_->BucketsToLoad(); }
  absl::Status EndLoad(bool same_world) override { return exchange_->EndLoad(same_world); }

 private:
  TunedExchange(SyncContext& context, std::unique_ptr<GradientExchange> exchange, const TuningSpace& space,
                bool allow_unused);
  absl::Status EndTrial();
  absl::Status Try(const Tuning& tuning);
  absl::StatusOr<double> SlowestRank(double seconds) const;
  void Report();
  void Say() const;

  std::unique_ptr<GradientExchange> exchange_;
  const bool allow_unused_;
  Tuner tuner_;
  Tuning tuning_;                  // that of exchange_
  int untimed_ = kUntimedAtStart;  // the next backwards that do not count
  std::vector<double> times_;      // of the backwards of this trial, in seconds
  bool times_backward_ = false;    // the backward under way belongs to the trial
  std::int64_t backward_begin_ns_ = 0;
};

}  // namespace tutti

#endif  // TUTTI_SYNC_TUNED_EXCHANGE_H_
