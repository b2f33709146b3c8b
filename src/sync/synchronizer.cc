#include "tutti/synchronizer.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "sync/agreement.h"
#include "sync/async_average.h"
#include "sync/buckets.h"
#include "sync/checkpoint.h"
#include "sync/gradient_exchange.h"
#include "sync/state.h"
#include "sync/weight_exchange.h"
#include "tutti/algorithm.h"

namespace tutti {
namespace {

absl::Status CheckOptions(absl::Span<const Parameter> parameters, const SynchronizerOptions& options) {
  for (const Parameter& parameter : parameters) {
    if (parameter.count < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("parameter ", parameter.name, ": count ", parameter.count, " must be at least 0"));
    }
  }
  if (options.bucket_bytes < 1 || options.first_bucket_bytes < 1) {
    return absl::InvalidArgumentError(absl::StrCat("bucket_bytes ", options.bucket_bytes, " and first_bucket_bytes ",
                                                   options.first_bucket_bytes, " must be at least 1"));
  }
  return absl::OkStatus();
}

absl::Duration SyncInterval(const Strategy& async) { return absl::Milliseconds(async.integer("sync_interval_ms")); }

// What the strategy needs.
absl::Status CheckNeeds(const Strategy& strategy, absl::Span<const Parameter> parameters, absl::Duration timeout) {
  if (!ExchangesWeights(*strategy.algorithm)) return absl::OkStatus();
  for (const Parameter& parameter : parameters) {
    if (parameter.weights != nullptr || parameter.count == 0) continue;
    return absl::InvalidArgumentError(absl::StrCat("parameter ", parameter.name, " has no weights; ",
                                                   strategy.algorithm->name,
                                                   " exchanges them and must know where they lie"));
  }
  if (strategy.algorithm->phase == Phase::kBackground && SyncInterval(strategy) >= timeout) {
    return absl::InvalidArgumentError(absl::StrCat(
        "sync_interval_ms of ", strategy.option("sync_interval_ms"), " must be less than the timeout of the ",
        "communicator, ", absl::FormatDuration(timeout), ": ranks wait for each other so long"));
  }
  return absl::OkStatus();
}

}  // namespace

double SyncStatistics::hidden() const {
  if (communication <= absl::ZeroDuration()) return 0;
  return std::clamp(1 - absl::FDivDuration(exposed, communication), 0.0, 1.0);
}

class Synchronizer::Impl {
 public:
  Impl(Communicator& its_communicator, std::vector<Parameter> its_parameters, Strategy its_strategy)
      : communicator(its_communicator),
        parameters(std::move(its_parameters)),
        strategy(std::move(its_strategy)),
        name(strategy.ToString()),
        participants(ParticipantsOf(strategy, communicator.size(), communicator.plan_options())),
        phase(strategy.algorithm->phase) {}

  absl::Status MakeExchanges(const Layout& layout, const SynchronizerOptions& options) {
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

  bool exchanges_gradients() const { return step < gradient_steps; }
  bool exchanges_weights() const { return ExchangesWeights(*strategy.algorithm); }
  bool steps_together() const { return background == nullptr || exchanges_gradients(); }

  absl::Status BeginBackward() {
    if (gradients == nullptr) return absl::OkStatus();
    if (strategy.algorithm->exchanges == Exchanges::kMomentum && momentum == nullptr) {
      return absl::FailedPreconditionError(
          absl::StrCat("strategy ", strategy.algorithm->name,
                       " exchanges the momentum of its own optimizer: create a QAdam (tutti/qadam.h, or "
                       "tutti/torch/qadam.h) before the first backward"));
    }
    return gradients->Begin(synchronize && exchanges_gradients(), step, momentum);
  }

  absl::Status FinishBackward() {
    if (gradients == nullptr) return absl::OkStatus();
    const bool synchronized = gradients->synchronizing();
    if (absl::Status status = gradients->Finish(statistics); !status.ok()) return status;
    if (synchronized && !exchanges_weights()) EndStep();
    return absl::OkStatus();
  }

  absl::Status BeginForward() {
    if (weights == nullptr || in_forward) return absl::OkStatus();
    in_forward = true;
    if (!replicas_are_set) {
      weights->ResetReplicas();
      replicas_are_set = true;
    }
    if (phase != Phase::kForward) return communicator.status();
    return Launch();
  }

  absl::Status BeforeStep() {
    if (absl::Status status = BeginForward(); !status.ok()) return status;
    return Arrive();
  }

  absl::Status AfterStep() {
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

  absl::Status Flush() {
    if (!exchanges_weights()) return absl::OkStatus();
    if (background != nullptr) {
      if (absl::Status status = background->FinishRound(statistics); !status.ok()) return status;
    }
    if (absl::Status status = Restart(); !status.ok()) return status;
    return (background != nullptr ? background->weights() : *weights).Average(communicator, statistics);
  }

  absl::Status Restart() {
    ForgetBegun();
    replicas_are_set = false;
    return EndExchange();
  }

  std::string Save() {
    if (!EndExchange().ok()) return "";
    // Those that the next step would begin with.
    if (weights != nullptr && !replicas_are_set) weights->ResetReplicas();
    return WriteCheckpoint(Owner(), buckets());
  }

  absl::Status Load(absl::Span<const std::string> states) {
    if (absl::Status status = EndExchange(); !status.ok()) return status;
    const absl::StatusOr<CheckpointOwner> saved = CheckCheckpoint(states, Owner(), buckets());
    // Before any rank goes on: its next round shall average nobody's snapshot of earlier weights.
    if (background != nullptr) background->ForgetRound();
    std::vector<std::pair<std::string, std::string>> fields = {ArgumentsField(saved.status())};
    if (saved.ok()) {
      fields.emplace_back("world of the states", absl::StrCat(saved->size, " ranks"));
      if (background == nullptr) fields.emplace_back("step of the states", absl::StrCat(saved->step));
    }
    const absl::Status agreed = tutti::Agree(communicator, "states", fields);
    if (!agreed.ok() && !absl::IsInvalidArgument(agreed)) return agreed;
    if (!saved.ok()) return saved.status();
    if (!agreed.ok()) return agreed;
    ReadCheckpoint(states, Owner(), buckets());
    ForgetBegun();
    step = saved->step;
    // Those of another world begin anew, from the weights.
    replicas_are_set = SameWorld(*saved, Owner());
    return absl::OkStatus();
  }

  absl::StatusOr<bool> AgreeOnOverflow(bool mine) {
    if (!steps_together()) return mine;
    std::int32_t any = mine ? 1 : 0;
    Work agreement = communicator.AllReduce(&any, &any, 1, DType::kI32, ReduceOp::kMax, {.caller_drives = true});
    if (absl::Status status = agreement.Wait(); !status.ok()) return status;
    return any != 0;
  }

  Communicator& communicator;
  const std::vector<Parameter> parameters;
  const Strategy strategy;
  const std::string name;
  const std::vector<Rank> participants;
  const Phase phase;
  int bucket_count = 0;
  std::unique_ptr<GradientExchange> gradients;
  std::unique_ptr<WeightExchange> weights;
  std::unique_ptr<AsyncAverage> background;
  std::int64_t gradient_steps = 0;  // steps from the first that exchange gradients
  std::int64_t step = 0;
  bool synchronize = true;
  bool in_forward = false;
  bool replicas_are_set = false;
  MomentumSource* momentum = nullptr;
  SyncStatistics statistics;

 private:
  absl::Status MakeGradients(const Strategy& of, const Layout& layout, const SynchronizerOptions& options) {
    absl::StatusOr<std::unique_ptr<GradientExchange>> made =
        GradientExchange::Create(communicator, of, parameters, layout, options.allow_unused);
    if (!made.ok()) return made.status();
    gradients = *std::move(made);
    return absl::OkStatus();
  }

  // Begins this step's exchange of weights, when what the last one still had to do for its peers is done.
  absl::Status Launch() {
    const int round = RoundOf(strategy, step, static_cast<int>(participants.size()));
    if (round == kNoExchange) return communicator.status();
    if (absl::Status status = EndExchange(); !status.ok()) return status;
    weights->TakeSnapshot();
    weights->Launch(round, step);
    return communicator.status();
  }

  // A round in the background; outputs, perhaps of a forward that has not happened.
  void ForgetBegun() {
    if (background != nullptr) background->ForgetRound();
    if (weights != nullptr) weights->ForgetOutputs();
    in_forward = false;
  }

  // What this rank still has to do for its peers.
  absl::Status EndExchange() { return weights == nullptr ? absl::OkStatus() : weights->Finish(statistics); }

  absl::Status Arrive() {
    if (weights == nullptr || !weights->travels()) return absl::OkStatus();
    if (absl::Status status = weights->FinishOutputs(statistics); !status.ok()) return status;
    weights->Replace();
    return absl::OkStatus();
  }

  void EndStep() {
    ++step;
    ++statistics.steps;
  }

  CheckpointOwner Owner() const {
    return {.strategy = name,
            .rank = communicator.rank(),
            .size = communicator.size(),
            .step = step,
            .steps_alone = background != nullptr,
            .participants = participants};
  }
  // Those that have state.
  absl::Span<ExchangeBucket> buckets() const {
    if (weights != nullptr) return absl::MakeSpan(weights->buckets());
    if (gradients != nullptr) return absl::MakeSpan(gradients->buckets());
    return {};
  }
};

absl::StatusOr<std::unique_ptr<Synchronizer>> Synchronizer::Create(Communicator& communicator,
                                                                   std::vector<Parameter> parameters,
                                                                   const SynchronizerOptions& options) {
  absl::Status mistake = CheckOptions(parameters, options);
  absl::StatusOr<Strategy> strategy = ParseStrategy(options.strategy);
  mistake.Update(strategy.status());
  if (strategy.ok()) mistake.Update(CheckNeeds(*strategy, parameters, communicator.timeout()));
  // A rank that is wrong takes part in the agreement: its peers would wait for it.
  const std::string agreed_strategy = strategy.ok() ? strategy->ToString() : options.strategy;
  if (absl::Status status = AgreeOnParameters(communicator, parameters, options, agreed_strategy, mistake);
      !status.ok()) {
    return status;
  }
  if (!mistake.ok()) return mistake;
  const Layout layout = LayOutBuckets(parameters, options.bucket_bytes, options.first_bucket_bytes);
  auto impl = std::make_unique<Impl>(communicator, std::move(parameters), *std::move(strategy));
  if (absl::Status made = impl->MakeExchanges(layout, options); !made.ok()) return made;
  return std::unique_ptr<Synchronizer>(new Synchronizer(std::move(impl)));
}

Synchronizer::Synchronizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Synchronizer::~Synchronizer() = default;

int Synchronizer::bucket_count() const { return impl_->bucket_count; }
const std::string& Synchronizer::strategy() const { return impl_->name; }
std::int64_t Synchronizer::step() const { return impl_->step; }
bool Synchronizer::exchanges_gradients() const { return impl_->exchanges_gradients(); }
bool Synchronizer::exchanges_weights() const { return impl_->exchanges_weights(); }
bool Synchronizer::steps_together() const { return impl_->steps_together(); }
const std::vector<Parameter>& Synchronizer::parameters() const { return impl_->parameters; }
void Synchronizer::set_momentum_source(MomentumSource* source) { impl_->momentum = source; }
MomentumSource* Synchronizer::momentum_source() const { return impl_->momentum; }

std::shared_ptr<void> Synchronizer::GradientView(int i) const {
  return impl_->gradients == nullptr ? nullptr : impl_->gradients->View(i);
}

absl::Status Synchronizer::BeginForward() { return impl_->BeginForward(); }
absl::Status Synchronizer::BeginBackward() { return impl_->BeginBackward(); }
void Synchronizer::MarkReady(int i) {
  if (impl_->gradients != nullptr) impl_->gradients->MarkReady(i);
}
std::vector<int> Synchronizer::MissingGradients() const {
  return impl_->gradients == nullptr ? std::vector<int>() : impl_->gradients->Missing();
}
absl::Status Synchronizer::FinishBackward() { return impl_->FinishBackward(); }
absl::Status Synchronizer::BeforeStep() { return impl_->BeforeStep(); }
absl::Status Synchronizer::AfterStep() { return impl_->AfterStep(); }
absl::Status Synchronizer::Flush() { return impl_->Flush(); }
absl::Status Synchronizer::Restart() { return impl_->Restart(); }

void Synchronizer::Pause() {
  if (impl_->background != nullptr) impl_->background->Pause();
}
void Synchronizer::Resume() {
  if (impl_->background != nullptr) impl_->background->Resume();
}

void Synchronizer::Stop() {
  if (impl_->background != nullptr) impl_->background->Stop();
}

absl::StatusOr<bool> Synchronizer::AgreeOnOverflow(bool mine) { return impl_->AgreeOnOverflow(mine); }

std::string Synchronizer::SaveState() const { return impl_->Save(); }
absl::Status Synchronizer::LoadState(absl::Span<const std::string> states) { return impl_->Load(states); }

void Synchronizer::set_synchronize(bool synchronize) { impl_->synchronize = synchronize; }
bool Synchronizer::synchronize() const { return impl_->synchronize; }

void Synchronizer::ZeroGradients() {
  if (impl_->gradients != nullptr) impl_->gradients->Zero();
}

absl::Status Synchronizer::Agree(const std::vector<std::pair<std::string, std::string>>& fields) {
  return tutti::Agree(impl_->communicator, "users", fields);
}

absl::Status Synchronizer::BroadcastState(absl::Span<const StateMemory> memory) {
  return tutti::BroadcastState(impl_->communicator, memory);
}

absl::Status Synchronizer::CheckState(absl::Span<const StateMemory> memory) {
  return tutti::CheckState(impl_->communicator, memory);
}

SyncStatistics Synchronizer::TakeStatistics() { return std::exchange(impl_->statistics, {}); }

}  // namespace tutti
