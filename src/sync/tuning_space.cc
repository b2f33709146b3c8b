#include "sync/tuning_space.h"

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "sync/buckets.h"
#include "tutti/selector.h"

namespace tutti {
namespace {

constexpr std::int64_t kMiB = 1 << 20;
constexpr std::int64_t kBucketBytes[] = {1 * kMiB, 5 * kMiB, 25 * kMiB, 100 * kMiB};
constexpr int kMaxSchedules = 3;

// Whether the algorithm has the flag `name`, and the flag is set.
bool IsSet(const Strategy& strategy, absl::string_view name) { return strategy.has(name) && strategy.flag(name); }

// The value of the option `schedule`; empty where the algorithm has none.
absl::string_view ScheduleOf(const Strategy& strategy) {
  return strategy.has("schedule") ? strategy.option("schedule") : absl::string_view();
}

// Why no property of `strategy` may be tuned; empty where some may.
std::string WhyNothing(const Strategy& strategy, int size) {
  const Algorithm& algorithm = *strategy.algorithm;
  if (size == 1) return "a single rank exchanges nothing";
  if (algorithm.phase == Phase::kBackground) return absl::StrCat(algorithm.name, " exchanges in the background");
  if (algorithm.exchanges != Exchanges::kGradients) {
    return absl::StrCat(algorithm.name, " exchanges ", Name(algorithm.exchanges), ", and only gradients are tuned");
  }
  const CodecChoice codec = CodecOf(strategy);
  if (codec.codec == nullptr) return "";
  if (IsSet(strategy, "error_feedback")) return "error_feedback=true keeps residuals that belong to these buckets";
  if (!codec.codec->linear.has_value()) {
    return absl::StrCat("with codec=", codec.codec->name, " the values that are exchanged depend on the buckets");
  }
  if (codec.options.rounding == Rounding::kStochastic) {
    return "with rounding=stochastic the values that are exchanged depend on the buckets";
  }
  // A given schedule adds casts up bucket by bucket, and rounds where the bucket is cut.
  if (const absl::string_view schedule = ScheduleOf(strategy); !schedule.empty() && schedule != "auto") {
    return absl::StrCat("with codec=", codec.codec->name, ",schedule=", schedule,
                        " the values that are exchanged depend on the buckets");
  }
  return "";
}

// Whether the plans of `strategy`, tuned, keep something of a bucket from one step to the next.
bool KeepsStates(const Tuning& tuning, const Strategy& strategy, absl::Span<const Parameter> parameters, int size,
                 const PlanOptions& plan) {
  const Strategy tuned = StrategyWith(tuning, strategy);
  const Layout layout = LayOutBuckets(parameters, tuning.bucket_bytes, tuning.first_bucket_bytes);
  return std::any_of(layout.buckets.begin(), layout.buckets.end(), [&](const BucketLayout& bucket) {
    const absl::StatusOr<Plan> built = BuildPlan(tuned, bucket.dtype, bucket.count, /*rank=*/0, size, plan);
    return built.ok() && !built->states.empty();
  });
}

// The parameters of each bucket.
std::vector<std::vector<int>> BucketsOf(const Tuning& tuning, absl::Span<const Parameter> parameters) {
  std::vector<std::vector<int>> buckets;
  for (BucketLayout& bucket : LayOutBuckets(parameters, tuning.bucket_bytes, tuning.first_bucket_bytes).buckets) {
    buckets.push_back(std::move(bucket.parameters));
  }
  return buckets;
}

// The bucket sizes that put the parameters into other buckets than the start and than each other.
std::vector<TuningChange> ChangesOfSize(const Tuning& start, absl::Span<const Parameter> parameters) {
  std::vector<TuningChange> changes;
  std::vector<std::vector<std::vector<int>>> known = {BucketsOf(start, parameters)};
  for (const std::int64_t bytes : kBucketBytes) {
    const TuningChange change = {.bucket_bytes = bytes};
    std::vector<std::vector<int>> buckets = BucketsOf(With(change, start), parameters);
    if (std::find(known.begin(), known.end(), buckets) != known.end()) continue;
    known.push_back(std::move(buckets));
    changes.push_back(change);
  }
  return changes;
}

// The schedules that are predicted to serve the largest bucket fastest, except one that serves all buckets already.
std::vector<TuningChange> ChangesOfSchedule(const Layout& layout, ReduceOp op, int size, const PlanOptions& plan) {
  const auto call = [op](const BucketLayout& bucket) {
    return CollectiveSpec{
        .collective = Collective::kAllReduce, .dtype = bucket.dtype, .op = op, .count = bucket.count, .in_place = true};
  };
  const auto bytes = [](const BucketLayout& bucket) { return bucket.count * SizeOf(bucket.dtype); };
  const auto largest =
      std::max_element(layout.buckets.begin(), layout.buckets.end(),
                       [&](const BucketLayout& a, const BucketLayout& b) { return bytes(a) < bytes(b); });
  if (largest == layout.buckets.end()) return {};
  const absl::StatusOr<Selection> selection = SelectSchedule(call(*largest), size, plan);
  if (!selection.ok()) return {};
  std::vector<TuningChange> changes;
  for (const Candidate& candidate : selection->candidates) {
    if (!candidate.refusal.ok() || static_cast<int>(changes.size()) == kMaxSchedules) break;
    const bool serves_all = std::all_of(layout.buckets.begin(), layout.buckets.end(), [&](const BucketLayout& bucket) {
      const absl::StatusOr<const Schedule*> chosen = ChooseSchedule(call(bucket), size, plan);
      return chosen.ok() && *chosen == candidate.schedule;
    });
    if (!serves_all) changes.push_back({.schedule = std::string(candidate.schedule->name)});
  }
  return changes;
}

}  // namespace

TuningSpace TuningSpaceOf(const Strategy& strategy, absl::Span<const Parameter> parameters,
                          const SynchronizerOptions& options, int size, const PlanOptions& plan) {
  TuningSpace space;
  space.start = {.bucket_bytes = options.bucket_bytes,
                 .first_bucket_bytes = options.first_bucket_bytes,
                 .schedule = std::string(ScheduleOf(strategy)),
                 .hierarchical = IsSet(strategy, "hierarchical")};
  space.reason = WhyNothing(strategy, size);
  if (!space.reason.empty()) return space;
  if (KeepsStates(space.start, strategy, parameters, size, plan)) {
    space.reason = absl::StrCat(strategy.algorithm->name, " keeps states that belong to these buckets");
    return space;
  }
  space.changes = ChangesOfSize(space.start, parameters);
  // A cast rounds the sums of what travels, so another path would round other sums.
  if (CodecOf(strategy).codec == nullptr) {
    if (space.start.schedule == "auto") {
      const ReduceOp op = Averages(strategy) ? ReduceOp::kAvg : ReduceOp::kSum;
      const Layout layout = LayOutBuckets(parameters, options.bucket_bytes, options.first_bucket_bytes);
      for (TuningChange& change : ChangesOfSchedule(layout, op, size, plan)) space.changes.push_back(std::move(change));
    }
    if (plan.has_hierarchy()) space.changes.push_back({.hierarchical = !space.start.hierarchical});
  }
  const std::size_t with_states = std::erase_if(space.changes, [&](const TuningChange& change) {
    return KeepsStates(With(change, space.start), strategy, parameters, size, plan);
  });
  if (!space.changes.empty()) return space;
  space.reason = with_states > 0 ? absl::StrCat(strategy.algorithm->name, " keeps states with all that could be tried")
                                 : "all bucket sizes give the same buckets, and one schedule serves them";
  return space;
}

Strategy StrategyWith(const Tuning& tuning, Strategy strategy) {
  for (auto& [name, value] : strategy.options) {
    if (name == "schedule") value = tuning.schedule;
    if (name == "hierarchical") value = tuning.hierarchical ? "true" : "false";
  }
  return strategy;
}

}  // namespace tutti
