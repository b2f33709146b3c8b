#include "sync/gradient_exchange.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/call_owner.h"
#include "base/exactly.h"
#include "sync/loss_scale.h"
#include "tutti/algorithm.h"

namespace tutti {
namespace {

std::vector<int> BucketOf(const Layout& layout) {
  std::vector<int> buckets;
  for (const GradientPlace& place : layout.places) buckets.push_back(place.bucket);
  return buckets;
}

}  // namespace

GradientExchange::GradientExchange(SyncContext& context, const Strategy& strategy, const Layout& layout,
                                   bool allow_unused)
    : Exchange(context),
      places_(layout.places),
      allow_unused_(allow_unused),
      sums_(!Averages(strategy)),
      layout_(layout.buckets),
      streams_(context.memory->on_device() ? context.parameters.size() : 0),
      ready_(BucketOf(layout), static_cast<int>(layout.buckets.size())) {}

GradientExchange::~GradientExchange() {
  if (!in_step_ || !synchronizing_) {
    (void)FinishOnDevice();
    return;
  }
  (void)Fail(absl::AbortedError(
      absl::StrCat("rank ", context_.communicator.rank(), " gave up its synchronizer in the middle of a step")));
}

absl::StatusOr<std::unique_ptr<GradientExchange>> GradientExchange::Create(SyncContext& context,
                                                                           const Strategy& strategy,
                                                                           const Layout& layout, bool allow_unused) {
  std::unique_ptr<GradientExchange> exchange(new GradientExchange(context, strategy, layout, allow_unused));
  if (absl::Status made = exchange->MakeMemory(strategy, layout); !made.ok()) return made;
  return exchange;
}

absl::Status GradientExchange::MakeMemory(const Strategy& strategy, const Layout& layout) {
  absl::StatusOr<std::vector<ExchangeBucket>> buckets =
      MakeBuckets(context_.communicator, *context_.memory, strategy, layout.buckets);
  if (!buckets.ok()) return buckets.status();
  buckets_ = *std::move(buckets);
  if (allow_unused_ && !context_.parameters.empty()) {
    absl::StatusOr<Buffer> used = context_.communicator.Allocate(static_cast<std::int64_t>(context_.parameters.size()));
    if (!used.ok()) return used.status();
    used_ = *std::move(used);
    const absl::Span<std::uint8_t> all = used_.as<std::uint8_t>();
    std::fill(all.begin(), all.end(), std::uint8_t{1});
  }
  return absl::OkStatus();
}

std::shared_ptr<void> GradientExchange::GradientView(int i) const {
  const GradientPlace& place = places_[i];
  const std::shared_ptr<Buffer>& bucket = buckets_[place.bucket].memory();
  return {bucket, bucket->data() + place.offset * SizeOf(context_.parameters[i].dtype)};
}

absl::Status GradientExchange::Begin(bool synchronize, MomentumSource* momentum) {
  if (in_step_) {
    return absl::FailedPreconditionError(
        absl::StrCat("rank ", context_.communicator.rank(), ": the last backward was begun but not finished"));
  }
  if (absl::Status ended = FinishOnDevice(); !ended.ok()) return ended;
  step_ = context_.step;
  begin_stream_ = context_.memory->stream();
  call_ = Call(Purpose::kStep);
  round_ = 0;
  if (synchronize && momentum != nullptr) {
    const absl::StatusOr<int> round = momentum->BeginBackward();
    if (!round.ok()) return round.status();
    round_ = *round;
  }
  // All ranks hold the same sums, which must count once: only rank 0 keeps them.
  if (std::exchange(holds_sums_, false) && context_.communicator.rank() != 0) ZeroGradients();
  momentum_ = momentum;
  ready_.Reset();
  wrong_mark_.store(kNoMark, std::memory_order_relaxed);
  synchronizing_ = synchronize;
  in_step_ = true;
  return absl::OkStatus();
}

absl::Status GradientExchange::FinishOnDevice() {
  return context_.memory->on_device() ? FinishAll(absl::MakeSpan(buckets_), context_.statistics) : absl::OkStatus();
}

void GradientExchange::MarkReady(int i, void* stream) {
  if (!synchronizing_) return;
  if (!context_.has_parameter(i)) {
    wrong_mark_.store(i, std::memory_order_relaxed);
    return;
  }
  // A gradient that is marked already may be on its way and must not change.
  if (momentum_ != nullptr && !ready_.marked(i)) momentum_->ReplaceGradient(i, stream);
  if (!streams_.empty()) streams_[i].store(stream, std::memory_order_relaxed);
  const bool first = ready_.Mark(i, [this](int b) { Launch(b); });
  if (!first) wrong_mark_.store(i, std::memory_order_relaxed);
}

// Starts the exchange of bucket `b` after what is now on the streams of all gradients in the bucket, which are computed
// there, and on that of Begin, from which zeros may come. Mark orders the stores of the streams before Launch.
void GradientExchange::Launch(int b) {
  CallOptions call = call_;
  if (!streams_.empty()) {
    const auto stream_of = [this](int i) { return streams_[i].load(std::memory_order_relaxed); };
    const std::vector<int>& inside = layout_[b].parameters;
    call.stream = stream_of(inside.back());
    for (std::size_t k = 0; k + 1 < inside.size(); ++k) {
      // Most gradients are on one stream, which is looked at once.
      void* const other = stream_of(inside[k]);
      if (k == 0 || other != stream_of(inside[k - 1])) context_.memory->LetWait(call.stream, other);
    }
    context_.memory->LetWait(call.stream, begin_stream_);
  }
  buckets_[b].Launch(round_, step_, call);
  if (streams_.empty()) return;
  // The peers would wait for this rank's part.
  if (!buckets_[b].refusal().ok()) context_.communicator.Abort(buckets_[b].refusal());
}

std::vector<int> GradientExchange::MissingGradients() const {
  std::vector<int> missing;
  if (!in_step_ || !synchronizing_) return missing;
  for (int i = 0; i < static_cast<int>(context_.parameters.size()); ++i) {
    if (!ready_.marked(i) && context_.parameters[i].count > 0) missing.push_back(i);
  }
  return missing;
}

// The error of what this rank did wrong in the step.
absl::Status GradientExchange::CheckStep(absl::Span<const int> missing) const {
  if (const std::int64_t wrong = wrong_mark_.load(std::memory_order_relaxed); wrong != kNoMark) {
    const auto i = static_cast<int>(wrong);
    const std::string what =
        context_.has_parameter(i)
            ? absl::StrCat("the gradient of ", context_.parameters[i].name, " was marked ready twice in one step")
            : absl::StrCat("gradient ", i, " was marked ready, must be at least 0 and less than the number of ",
                           "parameters, ", context_.parameters.size());
    return absl::InvalidArgumentError(absl::StrCat("rank ", context_.communicator.rank(), ": ", what));
  }
  if (missing.empty() || allow_unused_) return absl::OkStatus();
  const std::string names =
      absl::StrJoin(missing, ", ", [&](std::string* out, int i) { absl::StrAppend(out, context_.parameters[i].name); });
  return absl::InvalidArgumentError(
      absl::StrCat("rank ", context_.communicator.rank(), ": backward ended without a gradient of ", names,
                   "; set allow_unused (in Python: find_unused_parameters) if the loss need not depend "
                   "on every parameter"));
}

absl::Status GradientExchange::Finish() {
  if (!in_step_) {
    return absl::FailedPreconditionError(
        absl::StrCat("rank ", context_.communicator.rank(), ": FinishBackward needs a BeginBackward before it"));
  }
  if (synchronizing_) {
    const std::vector<int> missing = MissingGradients();
    if (absl::Status mistake = CheckStep(missing); !mistake.ok()) return Fail(mistake);
    // Marks the missing parameters, and those without elements, which nobody else marks.
    for (int i = 0; i < static_cast<int>(context_.parameters.size()); ++i) {
      if (!ready_.marked(i)) MarkReady(i, context_.memory->stream());
    }
    in_step_ = false;
    holds_sums_ = sums_;
    // On a GPU only the stream waits.
    const auto finish_all = context_.memory->on_device() ? FinishOutputs : FinishAll;
    if (used_.data() == nullptr) {
      return failed_ = context_.OrAbort(finish_all(absl::MakeSpan(buckets_), context_.statistics));
    }
    Work agreement = AgreeOnUsed(missing);
    absl::Status status = finish_all(absl::MakeSpan(buckets_), context_.statistics);
    status.Update(agreement.Wait());
    return failed_ = context_.OrAbort(std::move(status));
  }
  in_step_ = false;
  return absl::OkStatus();
}

absl::Status GradientExchange::FinishBackward() {
  const bool synchronized = synchronizing_;
  if (absl::Status status = Finish(); !status.ok()) return status;
  if (!synchronized) return absl::OkStatus();
  context_.EndStep();
  exchanged_ = true;
  return absl::OkStatus();
}

absl::Status GradientExchange::AfterStep() {
  // The round grows also where this rank exchanged nothing before the optimizer's step, so that the calls of its next
  // backward do not meet those of its peers' last one.
  if (!std::exchange(exchanged_, false)) ++context_.round;
  return absl::OkStatus();
}

absl::Status GradientExchange::SetLossScale(double scale) {
  if (scale == context_.loss_scale) return absl::OkStatus();
  absl::Status mistake;
  if (in_step_) {
    mistake = absl::FailedPreconditionError(
        "the loss scale may only change between steps: call SetLossScale before BeginBackward");
    // An agreement would meet a bucket of a peer whose buckets have not left yet.
    if (has_launched()) return mistake;
  }
  absl::Status agreed = AgreeOnLossScale(context_.communicator, scale, mistake, Call(Purpose::kLossScale));
  if (!agreed.ok()) return agreed;
  absl::Status scaled = FinishOnDevice();
  for (ExchangeBucket& bucket : buckets_) {
    if (scaled.ok()) scaled = bucket.ScaleResiduals(scale / context_.loss_scale);
  }
  if (scaled.ok()) context_.loss_scale = scale;
  return scaled;
}

absl::Status GradientExchange::Restart() {
  absl::Status ended = FinishAll(absl::MakeSpan(buckets_), context_.statistics);
  // Residuals are parts of gradients of the old weights.
  for (const ExchangeBucket& bucket : buckets_) bucket.ZeroResiduals();
  return failed_ = ended;
}

void GradientExchange::TakeOver(const GradientExchange& former) {
  for (int i = 0; i < static_cast<int>(context_.parameters.size()); ++i) {
    const Parameter& parameter = context_.parameters[i];
    if (parameter.count == 0) continue;
    context_.memory->Copy(GradientView(i).get(), former.GradientView(i).get(),
                          parameter.count * SizeOf(parameter.dtype));
  }
  if (used_.data() != nullptr) std::memcpy(used_.data(), former.used_.data(), context_.parameters.size());
  holds_sums_ = former.holds_sums_;
  exchanged_ = former.exchanged_;
}

absl::Status GradientExchange::FinishStates() {
  if (absl::Status ended = FinishOnDevice(); !ended.ok()) return ended;
  // On the host, too, buckets of a backward that an exception has ended may be on their way, with their states.
  absl::Status ended;
  for (ExchangeBucket& bucket : buckets_) {
    if (!bucket.states().empty()) ended.Update(bucket.Finish(context_.statistics));
  }
  return ended;
}

absl::StatusOr<absl::Span<ExchangeBucket>> GradientExchange::BucketsToSave() {
  absl::Status ended = FinishStates();
  if (!failed_.ok()) return failed_;
  if (!ended.ok()) return ended;
  return absl::MakeSpan(buckets_);
}

absl::Span<ExchangeBucket> GradientExchange::BucketsToLoad() {
  (void)FinishStates();
  return absl::MakeSpan(buckets_);
}

absl::Status GradientExchange::EndLoad(bool /*same_world*/) {
  exchanged_ = false;
  failed_ = absl::OkStatus();
  return absl::OkStatus();
}

// Starts the agreement on used parameters after the last bucket; it travels while the buckets do.
Work GradientExchange::AgreeOnUsed(absl::Span<const int> missing) {
  const absl::Span<std::uint8_t> used = used_.as<std::uint8_t>();
  std::fill(used.begin(), used.end(), std::uint8_t{1});
  for (int i : missing) used[i] = 0;
  CallOptions call = call_;
  call.caller_drives = true;
  return context_.communicator.AllReduce(used.data(), used.data(), static_cast<std::int64_t>(used.size()), DType::kU8,
                                         ReduceOp::kMax, call);
}

absl::Status GradientExchange::CancelBackward() {
  if (has_launched()) context_.round += kRepeatedRound;
  absl::Status status;
  SyncStatistics unused;
  for (int b = 0; has_launched() && b < ready_.launched(); ++b) {
    status.Update(buckets_[b].Finish(unused));
    // The caller may have zeroed the gradients while the bucket was on its way.
    context_.memory->Zero(buckets_[b].memory()->data(), buckets_[b].memory()->bytes());
  }
  in_step_ = false;
  synchronizing_ = false;
  return status;
}

// Ends the step for the peers too, which would otherwise wait for buckets that never come.
absl::Status GradientExchange::Fail(const absl::Status& mistake) {
  context_.communicator.Abort(absl::AbortedError(mistake.message()));
  SyncStatistics unused;
  for (int b = 0; b < ready_.launched(); ++b) (void)buckets_[b].Finish(unused);
  in_step_ = false;
  synchronizing_ = false;  // gradients that were missing may still be marked
  return failed_ = mistake;
}

void GradientExchange::ZeroGradients() {
  holds_sums_ = false;
  for (ExchangeBucket& bucket : buckets_) {
    context_.memory->Zero(bucket.memory()->data(), bucket.memory()->bytes());
  }
}

absl::StatusOr<std::unique_ptr<MomentumExchange>> MomentumExchange::Create(SyncContext& context, const Layout& layout,
                                                                           bool allow_unused) {
  std::unique_ptr<MomentumExchange> exchange(new MomentumExchange(context, context.strategy, layout, allow_unused));
  if (absl::Status made = exchange->MakeMemory(context.strategy, layout); !made.ok()) return made;
  return exchange;
}

absl::Status MomentumExchange::BeginBackward() {
  if (context_.momentum != nullptr) return GradientExchange::BeginBackward();
  const Algorithm& algorithm = *context_.strategy.algorithm;
  return absl::FailedPreconditionError(absl::StrCat("strategy ", algorithm.name,
                                                    " exchanges the momentum of its own optimizer: create a ",
                                                    algorithm.optimizer, " before the first backward"));
}

absl::Status MomentumExchange::SetLossScale(double scale) {
  if (scale == context_.loss_scale) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the loss scale must stay ", Exactly(context_.loss_scale), " with ", context_.strategy.algorithm->name,
      ", which puts gradients into the momentum before they can be divided by the scale"));
}

}  // namespace tutti
