#include "tutti/synchronizer.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/fork.h"
#include "plan/limits.h"
#include "sync/agreement.h"
#include "sync/buckets.h"
#include "sync/overlap.h"
#include "sync/state.h"
#include "sync/synchronizer_impl.h"
#include "tutti/algorithm.h"

namespace tutti {
namespace {

absl::Status CheckOptions(absl::Span<const Parameter> parameters, const SynchronizerOptions& options) {
  std::int64_t bytes_left = kMaxBytes;
  for (const Parameter& parameter : parameters) {
    if (const auto dtype = static_cast<std::size_t>(parameter.dtype); dtype >= kAllDTypes.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("parameter ", parameter.name, ": dtype ", dtype, " must be in 0…", kAllDTypes.size() - 1));
    }
    const std::int64_t most = bytes_left / SizeOf(parameter.dtype);
    if (parameter.count < 0 || parameter.count > most) {
      return absl::InvalidArgumentError(absl::StrCat("parameter ", parameter.name, ": count ", parameter.count,
                                                     " is not in 0…", most, ": all parameters together hold at most ",
                                                     kMaxBytes, " bytes"));
    }
    bytes_left -= parameter.count * SizeOf(parameter.dtype);
  }
  if (options.bucket_bytes < 1 || options.first_bucket_bytes < 1) {
    return absl::InvalidArgumentError(absl::StrCat("bucket_bytes ", options.bucket_bytes, " and first_bucket_bytes ",
                                                   options.first_bucket_bytes, " must be at least 1"));
  }
  return absl::OkStatus();
}

// Checks that parameters and timeout are what the strategy needs.
absl::Status CheckNeeds(const Strategy& strategy, absl::Span<const Parameter> parameters, const BucketMemory& memory,
                        absl::Duration timeout) {
  if (!ExchangesWeights(*strategy.algorithm)) return absl::OkStatus();
  std::vector<StateMemory> weights;
  for (const Parameter& parameter : parameters) {
    weights.push_back({parameter.weights, parameter.count * SizeOf(parameter.dtype), parameter.name});
    if (absl::Status is_here = memory.Check(parameter.weights); !is_here.ok()) {
      return absl::Status(is_here.code(), absl::StrCat("weights of parameter ", parameter.name, ": ", is_here.message(),
                                                       " (SynchronizerOptions::memory)"));
    }
    if (parameter.weights != nullptr || parameter.count == 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("parameter ", parameter.name, " has no weights, or gaps between its weights; ",
                     strategy.algorithm->name, " exchanges weights and needs those of a parameter in one piece"));
  }
  if (absl::Status disjoint = CheckDisjoint(std::move(weights)); !disjoint.ok()) return disjoint;
  if (strategy.algorithm->phase != Phase::kBackground) return absl::OkStatus();
  const BackgroundRounds rounds = strategy.algorithm->background(strategy);
  if (rounds.interval < timeout) return absl::OkStatus();
  const std::string interval =
      strategy.has(rounds.interval_option)
          ? absl::StrCat(rounds.interval_option, " of ", strategy.option(rounds.interval_option))
          : absl::StrCat("the interval of ", absl::FormatDuration(rounds.interval));
  return absl::InvalidArgumentError(absl::StrCat(interval, " must be less than the timeout of the communicator, ",
                                                 absl::FormatDuration(timeout),
                                                 ", because a rank may wait for its peers from one round to the next"));
}

}  // namespace

double SyncStatistics::hidden() const {
  if (communication <= absl::ZeroDuration()) return 0;
  return std::clamp(1 - absl::FDivDuration(exposed, communication), 0.0, 1.0);
}

absl::StatusOr<std::unique_ptr<Synchronizer>> Synchronizer::Create(Communicator& communicator,
                                                                   std::vector<Parameter> parameters,
                                                                   const SynchronizerOptions& options) {
  absl::Status mistake = CheckOptions(parameters, options);
  absl::StatusOr<Strategy> strategy = ParseStrategy(options.strategy);
  mistake.Update(strategy.status());
  absl::StatusOr<std::unique_ptr<BucketMemory>> memory = BucketMemory::Create(communicator, options.memory);
  mistake.Update(memory.status());
  if (mistake.ok()) mistake = CheckNeeds(*strategy, parameters, **memory, communicator.timeout());
  // A rank with a mistake takes part in the agreement, because its peers would wait for it.
  const std::string agreed_strategy = strategy.ok() ? strategy->ToString() : options.strategy;
  if (absl::Status status = AgreeOnParameters(communicator, parameters, options, agreed_strategy, mistake);
      !status.ok()) {
    return status;
  }
  const Layout layout = LayOutBuckets(parameters, options.bucket_bytes, options.first_bucket_bytes);
  const absl::StatusOr<Caller> caller = Caller::Create(communicator, CallOwner::Kind::kSynchronizer);
  if (!caller.ok()) return caller.status();
  std::vector<Rank> participants =
      ParticipantsOf(*strategy, communicator.size(), communicator.plan_options(options.memory));
  auto impl = std::make_unique<Impl>(communicator, *std::move(memory), *caller, std::move(parameters),
                                     *std::move(strategy), std::move(participants));
  if (absl::Status made = impl->Make(layout, options); !made.ok()) return made;
  return std::unique_ptr<Synchronizer>(new Synchronizer(std::move(impl)));
}

Synchronizer::Synchronizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Synchronizer::~Synchronizer() {
  if (impl_ != nullptr && !impl_->maker.is_this()) LeaveToParent(std::move(impl_));
}

std::uint32_t Synchronizer::number() const { return impl_->context.caller.number(); }
CallOptions Synchronizer::OwnCall(const CallOptions& options) const {
  return impl_->exchange->Call(Purpose::kUser, options);
}
int Synchronizer::bucket_count() const { return impl_->context.bucket_count; }
std::int64_t Synchronizer::moves() const { return impl_->context.moves; }
const TuningReport& Synchronizer::tuning() const { return impl_->context.tuning; }
const std::string& Synchronizer::strategy() const { return impl_->name; }
std::int64_t Synchronizer::step() const { return impl_->context.step; }
bool Synchronizer::exchanges_gradients() const { return impl_->exchange->exchanges_gradients(); }
bool Synchronizer::exchanges_weights() const { return ExchangesWeights(*impl_->context.strategy.algorithm); }
bool Synchronizer::steps_together() const { return impl_->exchange->steps_together(); }
const std::vector<Parameter>& Synchronizer::parameters() const { return impl_->context.parameters; }
void Synchronizer::set_momentum_source(MomentumSource* source) { impl_->context.momentum = source; }
MomentumSource* Synchronizer::momentum_source() const { return impl_->context.momentum; }

std::shared_ptr<void> Synchronizer::GradientView(int i) const {
  return impl_->context.has_parameter(i) ? impl_->exchange->GradientView(i) : nullptr;
}
absl::Status Synchronizer::BeginForward() { return impl_->exchange->BeginForward(); }
absl::Status Synchronizer::BeginBackward() { return impl_->exchange->BeginBackward(); }
void Synchronizer::SetStream(void* stream) { impl_->context.memory->SetStream(stream); }
void Synchronizer::MarkReady(int i) { MarkReady(i, impl_->context.memory->stream()); }
void Synchronizer::MarkReady(int i, void* stream) { impl_->exchange->MarkReady(i, stream); }
std::vector<int> Synchronizer::MissingGradients() const { return impl_->exchange->MissingGradients(); }
absl::Status Synchronizer::FinishBackward() { return impl_->exchange->FinishBackward(); }
bool Synchronizer::used(int i) const { return impl_->context.has_parameter(i) && impl_->exchange->used(i); }
absl::Status Synchronizer::CancelBackward() { return impl_->exchange->CancelBackward(); }
absl::Status Synchronizer::BeforeStep() { return impl_->exchange->BeforeStep(); }

absl::Status Synchronizer::AfterStep() {
  // Not in a warm-up, which exchanges gradients and keeps replicas equal.
  if (exchanges_weights() && !exchanges_gradients()) impl_->context.replicas_differ = true;
  return impl_->exchange->AfterStep();
}

absl::Status Synchronizer::Flush() {
  absl::Status flushed = impl_->exchange->Flush();
  if (flushed.ok()) impl_->context.replicas_differ = false;
  return flushed;
}

absl::Status Synchronizer::Restart() {
  impl_->context.replicas_differ = false;
  return impl_->exchange->Restart();
}

void Synchronizer::Pause() { impl_->exchange->Pause(); }
void Synchronizer::Resume() { impl_->exchange->Resume(); }
void Synchronizer::Stop() { impl_->exchange->Stop(); }

absl::StatusOr<bool> Synchronizer::AgreeOnOverflow(bool mine) { return impl_->AgreeOnOverflow(mine); }

absl::Status Synchronizer::SetLossScale(double scale) { return impl_->exchange->SetLossScale(scale); }
double Synchronizer::loss_scale() const { return impl_->context.loss_scale; }

std::string Synchronizer::SaveState() const { return impl_->Save(); }
absl::Status Synchronizer::LoadState(absl::Span<const std::string> states) { return impl_->Load(states); }

void Synchronizer::set_synchronize(bool synchronize) { impl_->context.synchronize = synchronize; }
bool Synchronizer::synchronize() const { return impl_->context.synchronize; }

void Synchronizer::ZeroGradients() { impl_->exchange->ZeroGradients(); }

absl::Status Synchronizer::Agree(absl::string_view name, const AgreementFields& fields, const absl::Status& mistake) {
  return tutti::Agree(impl_->context.communicator, name, fields, mistake, impl_->exchange->Call(Purpose::kState));
}

absl::Status Synchronizer::BroadcastState(absl::Span<const StateMemory> memory) {
  return tutti::BroadcastState(impl_->context.communicator, *impl_->context.memory, memory,
                               impl_->exchange->Call(Purpose::kState));
}

absl::Status Synchronizer::CheckState(absl::Span<const StateMemory> memory) {
  absl::Status equal = tutti::CheckState(impl_->context.communicator, *impl_->context.memory, memory,
                                         impl_->exchange->Call(Purpose::kState));
  if (!absl::IsDataLoss(equal) || !impl_->context.replicas_differ) return equal;
  return absl::FailedPreconditionError(
      absl::StrCat(equal.message(), "; ", impl_->context.strategy.algorithm->name,
                   " lets replicas differ from each step to the next Flush: call Flush (in Python: flush) on all ranks "
                   "before replicas are compared"));
}

SyncStatistics Synchronizer::TakeStatistics() { return impl_->TakeStatistics(); }

}  // namespace tutti
