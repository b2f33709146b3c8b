#include "sync/gradient_exchange.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tutti {
namespace {

std::vector<int> BucketOf(const Layout& layout) {
  std::vector<int> buckets;
  for (const GradientPlace& place : layout.places) buckets.push_back(place.bucket);
  return buckets;
}

}  // namespace

GradientExchange::GradientExchange(Communicator& communicator, const Strategy& strategy,
                                   const std::vector<Parameter>& parameters, const Layout& layout, bool allow_unused)
    : communicator_(communicator),
      parameters_(parameters),
      places_(layout.places),
      allow_unused_(allow_unused),
      sums_(strategy.option("average") == "false"),
      ready_(BucketOf(layout), static_cast<int>(layout.buckets.size())) {}

GradientExchange::~GradientExchange() {
  if (!in_step_ || !synchronizing_) return;
  (void)Fail(absl::AbortedError(
      absl::StrCat("rank ", communicator_.rank(), " gave up its synchronizer in the middle of a step")));
}

absl::StatusOr<std::unique_ptr<GradientExchange>> GradientExchange::Create(Communicator& communicator,
                                                                           const Strategy& strategy,
                                                                           const std::vector<Parameter>& parameters,
                                                                           const Layout& layout, bool allow_unused) {
  std::unique_ptr<GradientExchange> exchange(
      new GradientExchange(communicator, strategy, parameters, layout, allow_unused));
  absl::StatusOr<std::vector<ExchangeBucket>> buckets = MakeBuckets(communicator, strategy, layout.buckets);
  if (!buckets.ok()) return buckets.status();
  exchange->buckets_ = *std::move(buckets);
  if (allow_unused && !parameters.empty()) {
    absl::StatusOr<Buffer> used = communicator.Allocate(static_cast<std::int64_t>(parameters.size()));
    if (!used.ok()) return used.status();
    exchange->used_ = *std::move(used);
    const absl::Span<std::uint8_t> all = exchange->used_.as<std::uint8_t>();
    std::fill(all.begin(), all.end(), std::uint8_t{1});
  }
  return exchange;
}

std::shared_ptr<void> GradientExchange::View(int i) const {
  const GradientPlace& place = places_[i];
  const std::shared_ptr<Buffer>& bucket = buckets_[place.bucket].memory();
  return {bucket, bucket->data() + place.offset * SizeOf(parameters_[i].dtype)};
}

absl::Status GradientExchange::Begin(bool synchronize, std::int64_t step, MomentumSource* momentum,
                                     const CallOptions& call) {
  if (in_step_) {
    return absl::FailedPreconditionError(
        absl::StrCat("rank ", communicator_.rank(), ": the last backward was begun but not finished"));
  }
  step_ = step;
  call_ = call;
  round_ = 0;
  if (synchronize && momentum != nullptr) {
    const absl::StatusOr<int> round = momentum->BeginBackward();
    if (!round.ok()) return round.status();
    round_ = *round;
  }
  // All ranks hold the same sums, which must count once: only rank 0 keeps them.
  if (std::exchange(holds_sums_, false) && communicator_.rank() != 0) Zero();
  momentum_ = momentum;
  ready_.Reset();
  marked_twice_.store(-1, std::memory_order_relaxed);
  synchronizing_ = synchronize;
  in_step_ = true;
  return absl::OkStatus();
}

void GradientExchange::MarkReady(int i) {
  if (!synchronizing_) return;
  // A gradient that is marked already may be on its way and must not change.
  if (momentum_ != nullptr && !ready_.marked(i)) momentum_->ReplaceGradient(i);
  const bool first = ready_.Mark(i, [this](int b) { buckets_[b].Launch(round_, step_, call_); });
  if (!first) marked_twice_.store(i, std::memory_order_relaxed);
}

std::vector<int> GradientExchange::Missing() const {
  std::vector<int> missing;
  if (!in_step_ || !synchronizing_) return missing;
  for (int i = 0; i < static_cast<int>(parameters_.size()); ++i) {
    if (!ready_.marked(i) && View(i) != nullptr) missing.push_back(i);
  }
  return missing;
}

// The error of what this rank did wrong in the step.
absl::Status GradientExchange::CheckStep(absl::Span<const int> missing) const {
  if (const int twice = marked_twice_.load(std::memory_order_relaxed); twice >= 0) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", communicator_.rank(), ": the gradient of ",
                                                   parameters_[twice].name, " was marked ready twice in one step"));
  }
  if (missing.empty() || allow_unused_) return absl::OkStatus();
  const std::string names =
      absl::StrJoin(missing, ", ", [&](std::string* out, int i) { absl::StrAppend(out, parameters_[i].name); });
  return absl::InvalidArgumentError(absl::StrCat("rank ", communicator_.rank(),
                                                 ": backward ended without a gradient of ", names,
                                                 "; set allow_unused if the loss need not depend on every parameter"));
}

absl::Status GradientExchange::Finish(SyncStatistics& statistics) {
  if (!in_step_) return absl::FailedPreconditionError("FinishBackward without BeginBackward");
  if (synchronizing_) {
    const std::vector<int> missing = Missing();
    if (absl::Status mistake = CheckStep(missing); !mistake.ok()) return Fail(mistake);
    // Marks the missing parameters, and those without elements, which nobody else marks.
    for (int i = 0; i < static_cast<int>(parameters_.size()); ++i) {
      if (!ready_.marked(i)) MarkReady(i);
    }
    in_step_ = false;
    holds_sums_ = sums_;
    if (used_.data() == nullptr) return FinishAll(absl::MakeSpan(buckets_), statistics);
    Work agreement = AgreeOnUsed(missing);
    absl::Status status = FinishAll(absl::MakeSpan(buckets_), statistics);
    status.Update(agreement.Wait());
    return status;
  }
  in_step_ = false;
  return absl::OkStatus();
}

// Starts the agreement on used parameters after the last bucket; it travels while the buckets do.
Work GradientExchange::AgreeOnUsed(absl::Span<const int> missing) {
  const absl::Span<std::uint8_t> used = used_.as<std::uint8_t>();
  std::fill(used.begin(), used.end(), std::uint8_t{1});
  for (int i : missing) used[i] = 0;
  CallOptions call = call_;
  call.caller_drives = true;
  return communicator_.AllReduce(used.data(), used.data(), static_cast<std::int64_t>(used.size()), DType::kU8,
                                 ReduceOp::kMax, call);
}

absl::Status GradientExchange::Cancel() {
  absl::Status status;
  SyncStatistics unused;
  for (int b = 0; has_launched() && b < ready_.launched(); ++b) status.Update(buckets_[b].Finish(unused));
  in_step_ = false;
  return status;
}

// Ends the step for the peers too, which would otherwise wait for buckets that never come.
absl::Status GradientExchange::Fail(const absl::Status& mistake) {
  communicator_.Abort(absl::AbortedError(mistake.message()));
  SyncStatistics unused;
  for (int b = 0; b < ready_.launched(); ++b) (void)buckets_[b].Finish(unused);
  in_step_ = false;
  return mistake;
}

void GradientExchange::Zero() {
  holds_sums_ = false;
  for (ExchangeBucket& bucket : buckets_) {
    const absl::Span<std::byte> bytes = bucket.memory()->as<std::byte>();
    std::fill(bytes.begin(), bytes.end(), std::byte{0});
  }
}

}  // namespace tutti
