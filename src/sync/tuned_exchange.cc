#include "sync/tuned_exchange.h"

#include <cstdio>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/clock.h"
#include "base/median.h"
#include "sync/agreement.h"

namespace tutti {

absl::StatusOr<std::unique_ptr<TunedExchange>> TunedExchange::Create(SyncContext& context, const Layout& layout,
                                                                     const TuningSpace& space, bool allow_unused) {
  absl::StatusOr<std::unique_ptr<GradientExchange>> exchange =
      GradientExchange::Create(context, context.strategy, layout, allow_unused);
  if (!exchange.ok()) return exchange.status();
  return std::unique_ptr<TunedExchange>(new TunedExchange(context, *std::move(exchange), space, allow_unused));
}

TunedExchange::TunedExchange(SyncContext& context, std::unique_ptr<GradientExchange> exchange, const TuningSpace& space,
                             bool allow_unused)
    : Exchange(context),
      exchange_(std::move(exchange)),
      allow_unused_(allow_unused),
      tuner_(space.start, space.changes),
      tuning_(space.start) {
  context_.tuning.state = TuningState::kTuning;
  context_.tuning.most_backwards = kUntimedAtStart - kUntimed + tuner_.most_trials() * (kUntimed + kTimed);
  Report();
}

absl::Status TunedExchange::BeginBackward() {
  times_backward_ = !tuner_.done() && context_.synchronize;
  if (!times_backward_) return exchange_->BeginBackward();
  if (static_cast<int>(times_.size()) == kTimed) {
    if (absl::Status ended = EndTrial(); !ended.ok()) return ended;
    times_backward_ = !tuner_.done();
  }
  backward_begin_ns_ = MonotonicNanos();
  return exchange_->BeginBackward();
}

absl::Status TunedExchange::FinishBackward() {
  if (absl::Status status = exchange_->FinishBackward(); !status.ok()) return status;
  if (!std::exchange(times_backward_, false)) return absl::OkStatus();
  ++context_.tuning.backwards;
  if (untimed_ > 0) {
    --untimed_;
  } else {
    times_.push_back(static_cast<double>(MonotonicNanos() - backward_begin_ns_) * 1e-9);
  }
  return absl::OkStatus();
}

// Adds the time of this trial and begins the next one, or keeps the choice.
absl::Status TunedExchange::EndTrial() {
  const absl::StatusOr<double> seconds = SlowestRank(MedianOf(std::exchange(times_, {})));
  if (!seconds.ok()) return seconds.status();
  tuner_.Add(*seconds);
  for (;;) {
    absl::Status tried = Try(tuner_.next());
    if (tried.ok()) break;
    // Ranks are refused together (AgreeOnMemory). The choice was tried before, so nothing is left when it is refused.
    if (tuner_.done() || !context_.communicator.status().ok()) return tried;
    tuner_.Add(std::numeric_limits<double>::infinity());
  }
  untimed_ = kUntimed;
  Report();
  if (!tuner_.done()) return absl::OkStatus();
  context_.tuning.state = TuningState::kDone;
  if (context_.communicator.rank() == 0) Say();
  return absl::OkStatus();
}

// Makes the buckets anew for `tuning`. The old ones are kept after an error.
absl::Status TunedExchange::Try(const Tuning& tuning) {
  if (tuning == tuning_) return absl::OkStatus();
  const Layout layout = LayOutBuckets(context_.parameters, tuning.bucket_bytes, tuning.first_bucket_bytes);
  absl::StatusOr<std::unique_ptr<GradientExchange>> made =
      GradientExchange::Create(context_, StrategyWith(tuning, context_.strategy), layout, allow_unused_);
  absl::Status agreed = AgreeOnMemory(context_.communicator, context_.caller, made.status());
  if (!agreed.ok()) return agreed;
  (*made)->TakeOver(*exchange_);
  exchange_ = *std::move(made);
  tuning_ = tuning;
  context_.bucket_count = static_cast<int>(layout.buckets.size());
  ++context_.moves;
  return absl::OkStatus();
}

// The largest `seconds` of all ranks.
absl::StatusOr<double> TunedExchange::SlowestRank(double seconds) const {
  const CallOptions call = Call(Purpose::kState, {.caller_drives = true});
  Work slowest = context_.communicator.AllReduce(&seconds, &seconds, 1, DType::kF64, ReduceOp::kMax, call);
  if (absl::Status status = slowest.Wait(); !status.ok()) return status;
  return seconds;
}

void TunedExchange::Report() {
  context_.tuning.trials = tuner_.trials();
  context_.tuning.start = tuner_.start();
  context_.tuning.choice = tuner_.best();
}

void TunedExchange::Say() const {
  const TuningReport& report = context_.tuning;
  const auto milliseconds = [](const TuningTrial& trial) { return absl::StrFormat("%.2f ms", 1e3 * trial.seconds); };
  const std::string ended = absl::StrCat("autotuning of ", context_.strategy.algorithm->name, " has ended after ",
                                         report.backwards, " backward passes");
  const std::string text =
      report.choice.tuning == report.start.tuning
          ? absl::StrCat(ended, ": the options stay as they are (", ToString(report.start.tuning), "; ",
                         milliseconds(report.start), "): nothing else has saved ", 100 * Tuner::kMinGain, " %")
          : absl::StrFormat("%s: %s takes %s in place of %s with %s: %.0f %% less", ended,
                            ToString(report.choice.tuning), milliseconds(report.choice), milliseconds(report.start),
                            ToString(report.start.tuning), 100 * report.gain());
  std::fprintf(stderr, "tutti: %s\n", text.c_str());
}

}  // namespace tutti
