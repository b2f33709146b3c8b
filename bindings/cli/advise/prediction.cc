#include "bindings/cli/advise/prediction.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "bindings/cli/advise/codec_speeds.h"
#include "tutti/cost.h"
#include "tutti/rounding.h"

namespace tutti::cli {
namespace {

// Backward computes the gradients of inputs and of weights, which are two products of matrices where forward has one.
constexpr double kBackwardShare = 2.0 / 3;
// Rounds of a strategy differ in the peers, and hardly in time: a mean over this many is taken for that of all.
constexpr int kMaxRounds = 4;
// A step of a training applies the average of a background round or takes the snapshot for the next round, not both.
constexpr double kMaxBackgroundRoundsPerStep = 0.5;

// The machine on which all computing takes `times` as long.
CostModel WithSlowerMemory(CostModel model, double times) {
  for (double* rate : {&model.memory_bytes_per_s, &model.copy_bytes_per_s, &model.scratch_bytes_per_s}) *rate /= times;
  return model;
}

// The machine as a rank sees it that has `share` of a processor.
CostModel WithShareOfProcessor(CostModel model, double share) {
  for (LinkModel* link : {&model.within_node, &model.between_nodes}) {
    link->message_s /= share;
    link->copy_bytes_per_s *= share;
    link->announced_bytes_per_s *= share;
  }
  model.step_s /= share;
  return WithSlowerMemory(std::move(model), 1 / share);
}

bool Computes(const Step& step) { return step.num_dsts > 0 && step.num_srcs > 0 && step.kind != StepKind::kNative; }
bool UsesCodec(const Step& step) { return step.kind == StepKind::kEncode || step.kind == StepKind::kDecode; }

// The machine with links that carry everything at once, so that only what processors do takes time.
CostModel WithFreeLinks(CostModel model) {
  constexpr double kAtOnce = 1e18;
  for (LinkModel* link : {&model.within_node, &model.between_nodes}) {
    link->latency_s = 0;
    link->bytes_per_s = kAtOnce;
  }
  model.signal_s = 0;
  return model;
}

// One exchange of one bucket, or of several.
struct ExchangeCost {
  double wire_bytes = 0;
  double seconds = 0;
  double processor_s = 0;  // the part of `seconds` in which a processor works

  void Add(const ExchangeCost& other, double times) {
    wire_bytes += other.wire_bytes * times;
    seconds += other.seconds * times;
    processor_s += other.processor_s * times;
  }
};

class StepPredictor {
 public:
  StepPredictor(const Strategy& strategy, const AdvisedTraining& training)
      : strategy_(strategy),
        training_(training),
        share_(training.cores_per_rank > 0 ? std::min(training.cores_per_rank, 1.0) : 1),
        model_(WithShareOfProcessor(training.model, share_)) {
    options_.peers_mapped = true;
    options_.cost_model = std::make_shared<const CostModel>(model_);
    for (Rank rank = 0; rank < training.ranks && !training.one_node(); ++rank) {
      options_.nodes.push_back(rank / training.ranks_per_node);
    }
  }

  absl::StatusOr<StepPrediction> Predict() {
    if (absl::Status costed = CostBuckets(); !costed.ok()) return costed;
    switch (strategy_.algorithm->phase) {
      case Phase::kBackward:
        return DuringBackward();
      case Phase::kForward:
        return DuringStep(/*encoding_s=*/0);
      case Phase::kAfterStep:
        // The next forward begins when the rank's own message is encoded, which takes no longer than all work together.
        return DuringStep(/*encoding_s=*/total_.processor_s);
      case Phase::kBackground:
        break;
    }
    return InBackground();
  }

 private:
  std::vector<int> RoundsToCost() const {
    const int participants = static_cast<int>(ParticipantsOf(strategy_, training_.ranks, options_).size());
    const int rounds = RoundsOf(strategy_, participants);
    if (strategy_.algorithm->exchanges == Exchanges::kMomentum) return {rounds - 1};  // the others are of the warm-up
    std::vector<int> some(static_cast<std::size_t>(std::min(rounds, kMaxRounds)));
    for (std::size_t i = 0; i < some.size(); ++i)
      some[i] = static_cast<int>(i) * rounds / static_cast<int>(some.size());
    return some;
  }

  // How many times as long as on the model the steps of `plans` that compute take together, because codecs have speeds
  // of their own, of which the model, which knows bytes of memory alone, says nothing.
  absl::StatusOr<double> SlownessOfCodecs(absl::Span<const Plan> plans) const {
    const absl::StatusOr<std::vector<std::vector<StepTime>>> times = TimesOf(plans, model_, options_.nodes);
    if (!times.ok()) return times.status();
    double modelled_s = 0;
    double measured_s = 0;
    for (std::size_t p = 0; p < plans.size(); ++p) {
      for (std::size_t i = 0; i < plans[p].steps.size(); ++i) {
        const Step& step = plans[p].steps[i];
        if (!Computes(step)) continue;
        const StepTime& time = (*times)[p][i];
        const double seconds = time.worked - time.begin - model_.step_s;
        modelled_s += seconds;
        if (!UsesCodec(step)) {
          measured_s += seconds;
          continue;
        }
        const absl::StatusOr<double> of_codec = CodecSeconds(plans[p], step, training_.model.copy_bytes_per_s);
        if (!of_codec.ok()) return of_codec.status();
        measured_s += *of_codec / share_;
      }
    }
    return modelled_s > 0 ? measured_s / modelled_s : 1;
  }

  absl::StatusOr<ExchangeCost> CostOfBucket(std::int64_t count) const {
    ExchangeCost mean;
    const std::vector<int> rounds = RoundsToCost();
    for (const int round : rounds) {
      std::vector<Plan> plans;
      for (Rank rank = 0; rank < training_.ranks; ++rank) {
        absl::StatusOr<Plan> plan = BuildPlan(strategy_, DType::kF32, count, rank, training_.ranks, options_, round);
        if (!plan.ok()) return plan.status();
        plans.push_back(*std::move(plan));
      }
      const absl::StatusOr<double> slower = SlownessOfCodecs(plans);
      if (!slower.ok()) return slower.status();
      const CostModel model = WithSlowerMemory(model_, *slower);
      const absl::StatusOr<Cost> cost = CostOf(plans, model, options_.nodes);
      if (!cost.ok()) return cost.status();
      const absl::StatusOr<Cost> of_processors = CostOf(plans, WithFreeLinks(model), options_.nodes);
      if (!of_processors.ok()) return of_processors.status();
      mean.Add({.wire_bytes = static_cast<double>(cost->wire_bytes),
                .seconds = cost->seconds,
                .processor_s = std::min(of_processors->seconds, cost->seconds)},
               1.0 / static_cast<double>(rounds.size()));
    }
    return mean;
  }

  // Cuts the parameters into buckets, and costs each size of bucket once.
  absl::Status CostBuckets() {
    std::int64_t left = training_.parameters;
    std::int64_t limit = training_.first_bucket_parameters();
    std::int64_t costed = -1;
    ExchangeCost cost;
    while (left > 0) {
      const std::int64_t count = std::min(left, limit);
      if (count != costed) {
        const absl::StatusOr<ExchangeCost> of_bucket = CostOfBucket(count);
        if (!of_bucket.ok()) return of_bucket.status();
        cost = *of_bucket;
        costed = count;
      }
      buckets_.emplace_back(count, cost);
      total_.Add(cost, 1);
      left -= count;
      limit = training_.bucket_parameters();
    }
    return absl::OkStatus();
  }

  // The time for which the work of communication keeps the training from a processor.
  double Taken(double processor_s) const {
    return training_.cores_per_rank > 0 ? processor_s / std::max(training_.cores_per_rank, 1.0) : 0;
  }

  // The time to copy all parameters once, as snapshots of weights and their way back are.
  double CopySeconds() const {
    return 2.0 * SizeOf(DType::kF32) * static_cast<double>(training_.parameters) / model_.copy_bytes_per_s;
  }

  StepPrediction Of(double step_s) const {
    return {.wire_bytes = static_cast<std::int64_t>(total_.wire_bytes),
            .communication_s = total_.seconds,
            .step_s = step_s};
  }

  // The parameters of all layers that have some of the first `parameters`.
  std::int64_t InWholeLayers(std::int64_t parameters) const {
    return std::min(RoundUp(parameters, training_.layer_parameters), training_.parameters);
  }

  StepPrediction DuringBackward() const {
    const double backward_s = training_.step_s * kBackwardShare / training_.backwards;
    double computed_s = training_.step_s - backward_s;
    double end_s = 0;
    std::int64_t filled = 0;    // parameters of the buckets so far
    std::int64_t complete = 0;  // parameters whose gradients backward has computed
    for (const auto& [count, cost] : buckets_) {
      filled += count;
      const std::int64_t needed = InWholeLayers(filled);
      computed_s += backward_s * static_cast<double>(needed - complete) / static_cast<double>(training_.parameters);
      complete = needed;
      end_s = std::max(computed_s, end_s) + cost.seconds;
      computed_s += Taken(cost.processor_s);
    }
    return Of(std::max(computed_s, end_s));
  }

  // The step of a training whose weights travel during forward and backward, or until the next exchange, and whose
  // forward waits for `encoding_s`. A snapshot of the weights comes before, and the way back from it after.
  StepPrediction DuringStep(double encoding_s) const {
    const double computed_s = training_.step_s + std::max(Taken(total_.processor_s), encoding_s);
    // Both times vary from step to step, and ranks wait for the slowest of them: where the two are alike, the later one
    // ends 1.4 times as late as either. No other exponent fits the steps in docs/results better than 2.
    return Of(std::hypot(computed_s, total_.seconds) + 2 * CopySeconds());
  }

  StepPrediction InBackground() const {
    const BackgroundRounds rounds = strategy_.algorithm->background(strategy_);
    const double round_s = absl::ToDoubleSeconds(rounds.interval) + total_.seconds;
    const double rounds_per_step = std::min(training_.step_s / round_s, kMaxBackgroundRoundsPerStep);
    // A snapshot is a copy, and what is learnt of it one more.
    const double exposed_s = (2 * CopySeconds() + Taken(total_.processor_s)) * rounds_per_step;
    return {.wire_bytes = static_cast<std::int64_t>(total_.wire_bytes * rounds_per_step),
            .communication_s = total_.seconds * rounds_per_step,
            .step_s = training_.step_s + exposed_s};
  }

  const Strategy& strategy_;
  const AdvisedTraining& training_;
  const double share_;  // of a processor, which a rank has
  const CostModel model_;
  PlanOptions options_;
  std::vector<std::pair<std::int64_t, ExchangeCost>> buckets_;  // elements and costs, in the order of backward
  ExchangeCost total_;
};

}  // namespace

double StepPrediction::hidden(const AdvisedTraining& training) const {
  if (communication_s <= 0) return 0;
  return std::clamp(1 - (step_s - training.step_s) / communication_s, 0.0, 1.0);
}

absl::StatusOr<StepPrediction> PredictStep(const Strategy& strategy, const AdvisedTraining& training) {
  return StepPredictor(strategy, training).Predict();
}

}  // namespace tutti::cli
