#include "sync/weight_exchange.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "sync/loss_scale.h"

namespace tutti {

WeightExchange::WeightExchange(SyncContext& context, std::unique_ptr<WeightBuckets> weights)
    : Exchange(context),
      weights_(std::move(weights)),
      round_of_(RoundOf(context.strategy, static_cast<int>(context.participants.size()))) {}

WeightExchange::~WeightExchange() {
  if (!weights_->travels()) return;
  context_.communicator.Abort(absl::AbortedError(
      absl::StrCat("rank ", context_.communicator.rank(), " gave up its synchronizer in the middle of a step")));
}

absl::StatusOr<std::unique_ptr<WeightExchange>> WeightExchange::Create(SyncContext& context, const Layout& layout) {
  absl::StatusOr<std::unique_ptr<WeightBuckets>> weights =
      WeightBuckets::Create(context.communicator, *context.memory, context.strategy, context.parameters, layout);
  if (!weights.ok()) return weights.status();
  return std::unique_ptr<WeightExchange>(new WeightExchange(context, *std::move(weights)));
}

absl::Status WeightExchange::SetLossScale(double scale) { return CheckLossScale(scale); }

absl::Status WeightExchange::BeginForward() {
  if (in_forward_) return absl::OkStatus();
  if (absl::Status made = MakeReplicas(); !made.ok()) return made;
  replicas_are_set_ = true;
  const bool launches = context_.strategy.algorithm->phase == Phase::kForward;
  absl::Status begun = launches ? Launch() : context_.communicator.status();
  in_forward_ = begun.ok();
  return begun;
}

absl::Status WeightExchange::BeforeStep() {
  if (absl::Status alive = context_.communicator.status(); !alive.ok()) return alive;
  if (absl::Status status = BeginForward(); !status.ok()) return status;
  absl::Status arrived = Arrive();
  in_forward_ = arrived.ok();  // else the next try makes the exchange again
  return arrived;
}

absl::Status WeightExchange::AfterStep() {
  if (context_.strategy.algorithm->phase == Phase::kAfterStep) {
    if (absl::Status status = Launch(); !status.ok()) return status;
    if (absl::Status status = Arrive(); !status.ok()) return status;
  }
  context_.EndStep();
  in_forward_ = false;
  return absl::OkStatus();
}

absl::Status WeightExchange::Flush() {
  if (absl::Status status = Restart(); !status.ok()) return status;
  return Average();
}

absl::Status WeightExchange::Restart() {
  ForgetBegun();
  replicas_are_set_ = false;
  failed_ = Finish();
  return failed_;
}

absl::StatusOr<absl::Span<ExchangeBucket>> WeightExchange::BucketsToSave() {
  (void)Finish();
  if (!failed_.ok()) return failed_;
  if (absl::Status made = MakeReplicas(); !made.ok()) return made;
  return absl::MakeSpan(weights_->buckets());
}

absl::Span<ExchangeBucket> WeightExchange::BucketsToLoad() {
  (void)BucketsToSave();  // waits
  return absl::MakeSpan(weights_->buckets());
}

absl::Status WeightExchange::EndLoad(bool same_world) {
  ForgetBegun();
  replicas_are_set_ = same_world;
  failed_ = absl::OkStatus();
  if (same_world || context_.strategy.algorithm->exchanges != Exchanges::kWeightDifferences) return absl::OkStatus();
  // Replicas of another world start anew from the weights: a replica of a neighbour is that neighbour's only where all
  // weights are equal. Where ranks of nodes follow a leader they have no replica, but weights.
  absl::Status averaged = Average();
  if (averaged.ok()) context_.replicas_differ = false;
  return averaged;
}

absl::Status WeightExchange::Average() {
  failed_ = weights_->Average(context_.communicator, context_.caller, Call(Purpose::kFlush), context_.statistics);
  return failed_;
}

absl::Status WeightExchange::MakeReplicas() {
  if (replicas_are_set_ || context_.strategy.algorithm->exchanges != Exchanges::kWeightDifferences) {
    return absl::OkStatus();
  }
  if (!failed_.ok()) return failed_;
  if (absl::Status alive = context_.communicator.status(); !alive.ok()) return alive;
  weights_->ResetReplicas();
  return absl::OkStatus();
}

absl::Status WeightExchange::Finish() {
  absl::Status ended = weights_->Finish(context_.statistics);
  if (!ended.ok()) failed_ = ended;
  return ended;
}

absl::Status WeightExchange::Launch() {
  const int round = round_of_(context_.step);
  if (round == kNoExchange) return context_.communicator.status();
  if (absl::Status status = Finish(); !status.ok()) return status;
  failed_ = absl::OkStatus();
  weights_->TakeSnapshot();
  weights_->Launch(round, context_.step, Call(Purpose::kStep));
  return context_.communicator.status();
}

absl::Status WeightExchange::Arrive() {
  if (!weights_->travels()) return absl::OkStatus();
  if (absl::Status status = context_.OrAbort(weights_->FinishOutputs(context_.statistics)); !status.ok()) {
    (void)Finish();  // that exchange is over, and its error told
    return status;
  }
  weights_->Replace();
  return absl::OkStatus();
}

void WeightExchange::ForgetBegun() {
  weights_->ForgetOutputs();
  in_forward_ = false;
}

}  // namespace tutti
