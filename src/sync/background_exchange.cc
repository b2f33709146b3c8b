#include "sync/background_exchange.h"

#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sync/agreement.h"
#include "sync/loss_scale.h"
#include "sync/state.h"
#include "sync/weight_buckets.h"

namespace tutti {

BackgroundExchange::BackgroundExchange(SyncContext& context, Communicator& rounds,
                                       std::unique_ptr<AsyncAverage> average)
    : Exchange(context), average_(std::move(average)) {
  // After the warm-up nobody asks the other communicator how it is.
  context.memory->AbortToo(&rounds);
}

absl::Status BackgroundExchange::SetLossScale(double scale) { return CheckLossScale(scale); }

absl::Status BackgroundExchange::BeforeStep() {
  absl::Status status = context_.communicator.status();
  // In the warm-up gradients may not have been exchanged after an error of the communicator: they are this rank's
  // alone. After the warm-up a rank may leave while the others train on; any other error is a failure of which a rank
  // has told the others.
  return steps_together() || !absl::IsUnavailable(status) ? status : absl::OkStatus();
}

absl::Status BackgroundExchange::AfterStep() {
  context_.EndStep();
  return exchanges_gradients() ? absl::OkStatus() : average_->Step(context_.statistics);
}

absl::Status BackgroundExchange::Flush() {
  absl::Status met = average_->FinishRound(context_.statistics);
  if (met.ok()) met = average_->Meet(context_.statistics);
  if (!met.ok()) return EndFlush(met);
  return EndFlush(
      average_->weights().Average(context_.communicator, context_.caller, Call(Purpose::kFlush), context_.statistics));
}

absl::Status BackgroundExchange::EndFlush(const absl::Status& flushed) {
  failed_ = flushed;
  return flushed;
}

absl::StatusOr<absl::Span<ExchangeBucket>> BackgroundExchange::BucketsToSave() {
  if (!failed_.ok()) return failed_;
  if (absl::Status rounds = average_->status(); !rounds.ok()) return rounds;
  return absl::Span<ExchangeBucket>();
}

absl::Status BackgroundExchange::EndLoad(bool /*same_world*/) {
  failed_ = absl::OkStatus();
  return absl::OkStatus();
}

absl::Status BackgroundExchange::Restart() {
  average_->ForgetRound();
  return absl::OkStatus();
}

// The weights are about to be replaced: the round that is under way is dropped, because it averages the old weights.
absl::Span<ExchangeBucket> BackgroundExchange::BucketsToLoad() {
  average_->ForgetRound();
  return {};
}

WarmedUpExchange::WarmedUpExchange(SyncContext& context, std::unique_ptr<GradientExchange> gradients,
                                   Communicator& rounds, std::unique_ptr<AsyncAverage> average,
                                   std::int64_t warmup_steps)
    : BackgroundExchange(context, rounds, std::move(average)),
      gradients_(std::move(gradients)),
      warmup_steps_(warmup_steps) {}

absl::Status WarmedUpExchange::BeginBackward() {
  return gradients_->Begin(context_.synchronize && exchanges_gradients(), context_.momentum);
}

// The warm-up keeps weights equal, whose average may have other bits; weights that differ were written by somebody
// else.
absl::Status WarmedUpExchange::Flush() {
  if (exchanges_gradients()) {
    if (absl::Status flushed = gradients_->Flush(); !flushed.ok()) return EndFlush(flushed);
    std::vector<StateMemory> weights;
    for (const Parameter& parameter : context_.parameters) {
      weights.push_back({parameter.weights, parameter.count * SizeOf(parameter.dtype), parameter.name});
    }
    absl::Status equal = CheckState(context_.communicator, *context_.memory, weights, Call(Purpose::kState));
    if (!absl::IsDataLoss(equal)) return EndFlush(equal);
  }
  return BackgroundExchange::Flush();
}

absl::Status WarmedUpExchange::Restart() {
  absl::Status dropped = BackgroundExchange::Restart();
  dropped.Update(gradients_->Restart());
  return dropped;
}

absl::StatusOr<absl::Span<ExchangeBucket>> WarmedUpExchange::BucketsToSave() {
  if (auto none = BackgroundExchange::BucketsToSave(); !none.ok()) return none;
  return gradients_->BucketsToSave();
}

absl::Span<ExchangeBucket> WarmedUpExchange::BucketsToLoad() {
  (void)BackgroundExchange::BucketsToLoad();  // drops the round
  return gradients_->BucketsToLoad();
}

absl::StatusOr<std::unique_ptr<Exchange>> MakeBackgroundExchange(SyncContext& context, const Layout& layout,
                                                                 bool allow_unused) {
  const BackgroundRounds rounds = context.strategy.algorithm->background(context.strategy);
  absl::StatusOr<std::unique_ptr<Communicator>> own = context.communicator.Split(0, context.communicator.rank());
  if (!own.ok()) return own.status();
  absl::Status made;
  std::unique_ptr<GradientExchange> gradients;
  if (rounds.warmup_steps > 0) {
    const absl::StatusOr<Strategy> warmup = ParseStrategy(rounds.warmup_strategy);
    if (!warmup.ok()) return warmup.status();
    auto created = GradientExchange::Create(context, *warmup, layout, allow_unused);
    made.Update(created.status());
    if (created.ok()) gradients = *std::move(created);
  }
  absl::StatusOr<std::unique_ptr<WeightBuckets>> weights =
      WeightBuckets::Create(**own, *context.memory, context.strategy, context.parameters, layout);
  made.Update(weights.status());
  if (absl::Status agreed = AgreeOnMemory(context.communicator, context.caller, made); !agreed.ok()) return agreed;
  Communicator& its_own = **own;
  std::unique_ptr<AsyncAverage> average;
  try {
    average = std::make_unique<AsyncAverage>(context.caller, context.communicator, *std::move(own), *std::move(weights),
                                             rounds.interval, rounds.max_staleness);
  } catch (const std::system_error& error) {
    absl::Status no_thread = absl::ResourceExhaustedError(
        absl::StrCat("rank ", context.communicator.rank(), " cannot start the thread of ",
                     context.strategy.algorithm->name, ": ", error.what(), "; raise the limit (ulimit -u)"));
    context.communicator.Abort(no_thread);  // the peers go on to their next call
    return no_thread;
  }
  if (gradients == nullptr) return std::make_unique<BackgroundExchange>(context, its_own, std::move(average));
  return std::make_unique<WarmedUpExchange>(context, std::move(gradients), its_own, std::move(average),
                                            rounds.warmup_steps);
}

}  // namespace tutti
