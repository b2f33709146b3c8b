#include "sync/synchronizer_impl.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tutti/agreement.h"

namespace tutti {
namespace {

absl::Status NotALossScale(Rank rank, double scale) {
  return absl::InvalidArgumentError(
      absl::StrCat("loss scale of rank ", rank, " is ", scale, ", must be a finite number above 0"));
}

}  // namespace

absl::Status Synchronizer::Impl::MakeExchanges(const Layout& layout, const SynchronizerOptions& options) {
  bucket_count = static_cast<int>(layout.buckets.size());
  std::unique_ptr<Communicator> own;
  if (phase == Phase::kBackground) {
    absl::StatusOr<std::unique_ptr<Communicator>> split = communicator.Split(0, communicator.rank());
    if (!split.ok()) return split.status();
    own = *std::move(split);
  }
  const absl::Status made = MakeBuckets(own != nullptr ? *own : communicator, layout, options);
  // A rank without memory for its buckets tells all ranks, before anything runs on the buckets.
  absl::Status on_all = tutti::Agree(communicator, "memory", {}, made, Call(Purpose::kState));
  const bool ranks_differ = absl::IsInvalidArgument(on_all) && communicator.status().ok();
  if (ranks_differ && !absl::IsInvalidArgument(made)) {
    return absl::ResourceExhaustedError(on_all.message());
  }
  if (!on_all.ok() || own == nullptr) return on_all;
  background = std::make_unique<AsyncAverage>(caller, std::move(own), std::move(weights), SyncInterval(strategy),
                                              strategy.integer("max_staleness"));
  return absl::OkStatus();
}

absl::Status Synchronizer::Impl::MakeBuckets(Communicator& of_weights, const Layout& layout,
                                             const SynchronizerOptions& options) {
  if (!exchanges_weights()) {
    gradient_steps = std::numeric_limits<std::int64_t>::max();
    return MakeGradients(strategy, layout, options);
  }
  if (phase == Phase::kBackground) gradient_steps = strategy.integer("warmup_steps");
  if (gradient_steps > 0) {
    const std::string warm_up = absl::StrCat("gradient_allreduce:hierarchical=", strategy.option("hierarchical"));
    if (absl::Status made = MakeGradients(*ParseStrategy(warm_up), layout, options); !made.ok()) return made;
  }
  absl::StatusOr<std::unique_ptr<WeightExchange>> made =
      WeightExchange::Create(of_weights, strategy, parameters, layout);
  if (!made.ok()) return made.status();
  weights = *std::move(made);
  return absl::OkStatus();
}

absl::Status Synchronizer::Impl::BeginBackward() {
  if (gradients == nullptr) return absl::OkStatus();
  if (strategy.algorithm->exchanges == Exchanges::kMomentum && momentum == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("strategy ", strategy.algorithm->name,
                     " exchanges the momentum of its own optimizer: create a QAdam (tutti/qadam.h, or "
                     "tutti/torch/qadam.h) before the first backward"));
  }
  return gradients->Begin(synchronize && exchanges_gradients(), step, momentum, Call(Purpose::kStep));
}

absl::Status Synchronizer::Impl::FinishBackward() {
  if (gradients == nullptr) return absl::OkStatus();
  const bool synchronized = gradients->synchronizing();
  if (absl::Status status = gradients->Finish(statistics); !status.ok()) return status;
  if (synchronized && !exchanges_weights()) {
    EndStep();
    exchanged_ = true;
  }
  return absl::OkStatus();
}

absl::Status Synchronizer::Impl::CancelBackward() {
  constexpr std::uint64_t kGivenUp = 1'000'000'000;
  if (gradients == nullptr) return absl::OkStatus();
  if (gradients->has_launched()) round_ += kGivenUp;
  return gradients->Cancel();
}

absl::Status Synchronizer::Impl::BeginForward() {
  if (weights == nullptr || in_forward) return absl::OkStatus();
  in_forward = true;
  if (!replicas_are_set) {
    weights->ResetReplicas();
    replicas_are_set = true;
  }
  if (phase != Phase::kForward) return communicator.status();
  return Launch();
}

absl::Status Synchronizer::Impl::BeforeStep() {
  // After an error of the communicator gradients may not have been exchanged: they are this rank's alone.
  if (absl::Status alive = communicator.status(); steps_together() && !alive.ok()) return alive;
  if (absl::Status status = BeginForward(); !status.ok()) return status;
  return Arrive();
}

absl::Status Synchronizer::Impl::AfterStep() {
  if (!exchanges_weights()) {
    // A rank that leaves out a backward must not take its peers' next backward for its own.
    if (!std::exchange(exchanged_, false)) ++round_;
    return absl::OkStatus();
  }
  if (phase == Phase::kAfterStep) {
    if (absl::Status status = Launch(); !status.ok()) return status;
    if (absl::Status status = Arrive(); !status.ok()) return status;
  }
  EndStep();
  in_forward = false;
  if (background != nullptr && !exchanges_gradients()) return background->Step(statistics);
  return absl::OkStatus();
}

absl::Status Synchronizer::Impl::Flush() {
  if (!exchanges_weights()) return communicator.status();
  if (background != nullptr) {
    if (absl::Status status = background->FinishRound(statistics); !status.ok()) return status;
  }
  if (absl::Status status = Restart(); !status.ok()) return status;
  return (background != nullptr ? background->weights() : *weights)
      .Average(communicator, Call(Purpose::kFlush), statistics);
}

absl::Status Synchronizer::Impl::Restart() {
  ForgetBegun();
  replicas_are_set = false;
  return EndExchange();
}

std::string Synchronizer::Impl::Save() {
  if (!EndExchange().ok()) return "";
  // Replicas are saved as the next step would begin with them.
  if (weights != nullptr && !replicas_are_set) weights->ResetReplicas();
  return WriteCheckpoint(Owner(), buckets());
}

absl::Status Synchronizer::Impl::Load(absl::Span<const std::string> states) {
  if (absl::Status status = EndExchange(); !status.ok()) return status;
  // Rounds are dropped before any rank goes on: the next round must not average a snapshot of the old weights.
  if (background != nullptr) background->ForgetRound();
  const auto agree = [this](const absl::StatusOr<CheckpointOwner>& saved) {
    AgreementFields fields;
    if (saved.ok()) {
      fields.emplace_back("world of the states", absl::StrCat(saved->size, " ranks"));
      fields.emplace_back("loss scale of the states", absl::StrCat(saved->loss_scale));
      if (background == nullptr) fields.emplace_back("step of the states", absl::StrCat(saved->step));
    }
    return tutti::Agree(communicator, "states", std::move(fields), saved.status(), Call(Purpose::kState));
  };
  const absl::StatusOr<CheckpointOwner> saved = ReadCheckpoint(states, Owner(), buckets(), agree);
  if (!saved.ok()) return saved.status();
  ForgetBegun();
  step = saved->step;
  round_ = static_cast<std::uint64_t>(step) + 1;
  exchanged_ = false;
  loss_scale = saved->loss_scale;
  // Replicas of another world start anew from the weights.
  replicas_are_set = SameWorld(*saved, Owner());
  return absl::OkStatus();
}

absl::StatusOr<bool> Synchronizer::Impl::AgreeOnOverflow(bool mine) {
  if (!steps_together()) return mine;
  std::int32_t any = mine ? 1 : 0;
  Work agreement = communicator.AllReduce(&any, &any, 1, DType::kI32, ReduceOp::kMax,
                                          Call(Purpose::kOverflow, {.caller_drives = true}));
  if (absl::Status status = agreement.Wait(); !status.ok()) return status;
  return any != 0;
}

absl::Status Synchronizer::Impl::CheckScalable() const {
  if (gradients->in_step()) {
    return absl::FailedPreconditionError(
        absl::StrCat("rank ", communicator.rank(), ": the loss scale may only change between steps"));
  }
  if (strategy.algorithm->exchanges == Exchanges::kMomentum) {
    return absl::InvalidArgumentError(
        absl::StrCat("the loss scale must stay ", loss_scale, " with ", strategy.algorithm->name,
                     ", which puts gradients into the momentum before they can be divided by the scale"));
  }
  return absl::OkStatus();
}

absl::Status Synchronizer::Impl::SetLossScale(double scale) {
  if (exchanges_weights() && !IsLossScale(scale)) return NotALossScale(communicator.rank(), scale);
  if (exchanges_weights() || scale == loss_scale) return absl::OkStatus();
  if (absl::Status scalable = CheckScalable(); !scalable.ok()) return scalable;
  std::vector<double> scales(static_cast<std::size_t>(communicator.size()));
  Work gather =
      communicator.AllGather(&scale, scales.data(), 1, DType::kF64, Call(Purpose::kLossScale, {.caller_drives = true}));
  if (absl::Status status = gather.Wait(); !status.ok()) return status;
  for (std::size_t rank = 0; rank < scales.size(); ++rank) {
    if (!IsLossScale(scales[rank])) {
      return NotALossScale(static_cast<Rank>(rank), scales[rank]);
    }
    if (scales[rank] != scales[0]) {
      return absl::InvalidArgumentError(absl::StrCat("loss scale of rank ", rank, " is ", scales[rank],
                                                     ", that of rank 0 is ", scales[0],
                                                     "; it must be equal on all ranks"));
    }
  }
  for (ExchangeBucket& bucket : gradients->buckets()) bucket.ScaleResiduals(scale / loss_scale);
  loss_scale = scale;
  return absl::OkStatus();
}

absl::Status Synchronizer::Impl::MakeGradients(const Strategy& of, const Layout& layout,
                                               const SynchronizerOptions& options) {
  absl::StatusOr<std::unique_ptr<GradientExchange>> made =
      GradientExchange::Create(communicator, of, parameters, layout, options.allow_unused);
  if (!made.ok()) return made.status();
  gradients = *std::move(made);
  return absl::OkStatus();
}

absl::Status Synchronizer::Impl::Launch() {
  const int round = RoundOf(strategy, step, static_cast<int>(participants.size()));
  if (round == kNoExchange) return communicator.status();
  if (absl::Status status = EndExchange(); !status.ok()) return status;
  weights->TakeSnapshot();
  weights->Launch(round, step, Call(Purpose::kStep));
  return communicator.status();
}

void Synchronizer::Impl::ForgetBegun() {
  if (background != nullptr) background->ForgetRound();
  if (weights != nullptr) weights->ForgetOutputs();
  in_forward = false;
}

absl::Status Synchronizer::Impl::Arrive() {
  if (weights == nullptr || !weights->travels()) return absl::OkStatus();
  if (absl::Status status = weights->FinishOutputs(statistics); !status.ok()) return status;
  weights->Replace();
  return absl::OkStatus();
}

void Synchronizer::Impl::EndStep() {
  ++step;
  ++round_;
  ++statistics.steps;
}

CheckpointOwner Synchronizer::Impl::Owner() const {
  return {.strategy = name,
          .rank = communicator.rank(),
          .size = communicator.size(),
          .step = step,
          .loss_scale = loss_scale,
          .steps_alone = background != nullptr,
          .participants = participants};
}

absl::Span<ExchangeBucket> Synchronizer::Impl::buckets() const {
  if (weights != nullptr) return absl::MakeSpan(weights->buckets());
  if (gradients != nullptr) return absl::MakeSpan(gradients->buckets());
  return {};
}

}  // namespace tutti
