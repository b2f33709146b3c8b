#include "sync/synchronizer_impl.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tutti/agreement.h"

namespace tutti {

absl::Status Synchronizer::Impl::MakeExchanges(const Layout& layout, const SynchronizerOptions& options) {
  bucket_count = static_cast<int>(layout.buckets.size());
  if (!exchanges_weights()) {
    gradient_steps = std::numeric_limits<std::int64_t>::max();
    return MakeGradients(strategy, layout, options);
  }
  if (phase != Phase::kBackground) {
    absl::StatusOr<std::unique_ptr<WeightExchange>> made =
        WeightExchange::Create(communicator, strategy, parameters, layout);
    if (!made.ok()) return made.status();
    weights = *std::move(made);
    return absl::OkStatus();
  }
  gradient_steps = strategy.integer("warmup_steps");
  if (gradient_steps > 0) {
    const std::string warm_up = absl::StrCat("gradient_allreduce:hierarchical=", strategy.option("hierarchical"));
    if (absl::Status made = MakeGradients(*ParseStrategy(warm_up), layout, options); !made.ok()) return made;
  }
  absl::StatusOr<std::unique_ptr<Communicator>> own = communicator.Split(0, communicator.rank());
  if (!own.ok()) return own.status();
  absl::StatusOr<std::unique_ptr<WeightExchange>> made = WeightExchange::Create(**own, strategy, parameters, layout);
  if (!made.ok()) return made.status();
  background = std::make_unique<AsyncAverage>(*std::move(own), *std::move(made), SyncInterval(strategy),
                                              strategy.integer("max_staleness"));
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
  return gradients->Begin(synchronize && exchanges_gradients(), step, momentum);
}

absl::Status Synchronizer::Impl::FinishBackward() {
  if (gradients == nullptr) return absl::OkStatus();
  const bool synchronized = gradients->synchronizing();
  if (absl::Status status = gradients->Finish(statistics); !status.ok()) return status;
  if (synchronized && !exchanges_weights()) EndStep();
  return absl::OkStatus();
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
  if (absl::Status status = BeginForward(); !status.ok()) return status;
  return Arrive();
}

absl::Status Synchronizer::Impl::AfterStep() {
  if (!exchanges_weights()) return absl::OkStatus();
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
  if (!exchanges_weights()) return absl::OkStatus();
  if (background != nullptr) {
    if (absl::Status status = background->FinishRound(statistics); !status.ok()) return status;
  }
  if (absl::Status status = Restart(); !status.ok()) return status;
  return (background != nullptr ? background->weights() : *weights).Average(communicator, statistics);
}

absl::Status Synchronizer::Impl::Restart() {
  ForgetBegun();
  replicas_are_set = false;
  return EndExchange();
}

std::string Synchronizer::Impl::Save() {
  if (!EndExchange().ok()) return "";
  // Those that the next step would begin with.
  if (weights != nullptr && !replicas_are_set) weights->ResetReplicas();
  return WriteCheckpoint(Owner(), buckets());
}

absl::Status Synchronizer::Impl::Load(absl::Span<const std::string> states) {
  if (absl::Status status = EndExchange(); !status.ok()) return status;
  // Before any rank goes on: its next round shall average nobody's snapshot of earlier weights.
  if (background != nullptr) background->ForgetRound();
  const auto agree = [this](const absl::StatusOr<CheckpointOwner>& saved) {
    AgreementFields fields;
    if (saved.ok()) {
      fields.emplace_back("world of the states", absl::StrCat(saved->size, " ranks"));
      if (background == nullptr) fields.emplace_back("step of the states", absl::StrCat(saved->step));
    }
    return tutti::Agree(communicator, "states", std::move(fields), saved.status());
  };
  const absl::StatusOr<CheckpointOwner> saved = ReadCheckpoint(states, Owner(), buckets(), agree);
  if (!saved.ok()) return saved.status();
  ForgetBegun();
  step = saved->step;
  // Those of another world begin anew, from the weights.
  replicas_are_set = SameWorld(*saved, Owner());
  return absl::OkStatus();
}

absl::StatusOr<bool> Synchronizer::Impl::AgreeOnOverflow(bool mine) {
  if (!steps_together()) return mine;
  std::int32_t any = mine ? 1 : 0;
  Work agreement = communicator.AllReduce(&any, &any, 1, DType::kI32, ReduceOp::kMax, {.caller_drives = true});
  if (absl::Status status = agreement.Wait(); !status.ok()) return status;
  return any != 0;
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
  weights->Launch(round, step);
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
  ++statistics.steps;
}

CheckpointOwner Synchronizer::Impl::Owner() const {
  return {.strategy = name,
          .rank = communicator.rank(),
          .size = communicator.size(),
          .step = step,
          .steps_alone = background != nullptr,
          .participants = participants};
}

absl::Span<ExchangeBucket> Synchronizer::Impl::buckets() const {
  if (weights != nullptr) return absl::MakeSpan(weights->buckets());
  if (gradients != nullptr) return absl::MakeSpan(gradients->buckets());
  return {};
}

}  // namespace tutti
