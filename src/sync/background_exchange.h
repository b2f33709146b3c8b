// Weights that the ranks average in the background, while every rank trains at its own pace.
#ifndef TUTTI_SYNC_BACKGROUND_EXCHANGE_H_
#define TUTTI_SYNC_BACKGROUND_EXCHANGE_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "sync/async_average.h"
#include "sync/buckets.h"
#include "sync/exchange.h"
#include "sync/gradient_exchange.h"
#include "tutti/algorithm.h"

namespace tutti {

class BackgroundExchange : public Exchange {
 public:
  // `rounds`: the communicator of `average`.
  BackgroundExchange(SyncContext& context, Communicator& rounds, std::unique_ptr<AsyncAverage> average);
  ~BackgroundExchange() override { context_.memory->AbortToo(nullptr); }

  bool steps_together() const override { return exchanges_gradients(); }
  absl::Status SetLossScale(double scale) override;
  absl::Status BeforeStep() override;
  absl::Status AfterStep() override;
  absl::Status Flush() override;
  absl::Status Restart() override;
  void Pause() override { average_->Pause(); }
  void Resume() override { average_->Resume(); }
  void Stop() override { average_->Stop(); }
  // Does not wait for a round that is under way: weights without its average are weights of this rank, too.
  absl::StatusOr<absl::Span<ExchangeBucket>> BucketsToSave() override;
  absl::Span<ExchangeBucket> BucketsToLoad() override;
  absl::Status EndLoad(bool same_world) override;

 protected:
  // Keeps the end of a Flush, and returns it.
  absl::Status EndFlush(const absl::Status& flushed);

 private:
  const std::unique_ptr<AsyncAverage> average_;
  // The error of the last Flush, which may have left some weights averaged and others not. OK again once a Flush
  // succeeds, or a state is loaded.
  absl::Status failed_;
};

// A BackgroundExchange after a warm-up, whose steps exchange gradients.
class WarmedUpExchange final : public BackgroundExchange {
 public:
  WarmedUpExchange(SyncContext& context, std::unique_ptr<GradientExchange> gradients, Communicator& rounds,
                   std::unique_ptr<AsyncAverage> average, std::int64_t warmup_steps);

  bool exchanges_gradients() const override { return context_.step < warmup_steps_; }
  std::shared_ptr<void> GradientView(int i) const override { return gradients_->GradientView(i); }
  absl::Status BeginBackward() override;
  void MarkReady(int i, void* stream) override { gradients_->MarkReady(i, stream); }
  std::vector<int> MissingGradients() const override { return gradients_->MissingGradients(); }
  absl::Status FinishBackward() override { return gradients_->Finish(); }
  bool used(int i) const override { return gradients_->used(i); }
  absl::Status CancelBackward() override { return gradients_->CancelBackward(); }
  void ZeroGradients() override { gradients_->ZeroGradients(); }
  absl::Status Flush() override;
  absl::Status Restart() override;
  absl::StatusOr<absl::Span<ExchangeBucket>> BucketsToSave() override;
  absl::Span<ExchangeBucket> BucketsToLoad() override;

 private:
  const std::unique_ptr<GradientExchange> gradients_;
  const std::int64_t warmup_steps_;
};

// Makes a WarmedUpExchange where the strategy has a warm-up, otherwise a BackgroundExchange. Collective: an error of
// one rank's memory is an error on all ranks.
absl::StatusOr<std::unique_ptr<Exchange>> MakeBackgroundExchange(SyncContext& context, const Layout& layout,
                                                                 bool allow_unused);

}  // namespace tutti

#endif  // TUTTI_SYNC_BACKGROUND_EXCHANGE_H_
