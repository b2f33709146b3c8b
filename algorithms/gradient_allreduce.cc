// gradient_allreduce: every rank ends with (1/n) Σ g, by one all_reduce per bucket that overlaps with backward.
//
// The exchange is lossless, unless `codec` names a cast to 16 bits: a bucket then travels in two shots (two_shot.h), is
// added up in f32 and rounded twice, for any number of ranks n. With a given schedule, that schedule reduces the cast
// bucket instead, and rounds as for any bucket of the 16-bit type. A bucket of the codec's own type travels as it is.
// With hierarchical=true the sums of nodes are f32 (hierarchy.h), and it is those sums that are cast and travel: they
// come to the codec's largest value as many times earlier as a node has ranks.
#include <cstddef>
#include <numeric>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "algorithms/compressed_all_reduce.h"
#include "tutti/algorithm.h"
#include "tutti/selector.h"

namespace tutti {
namespace {

constexpr AlgorithmOption kOptions[] = {
    {"average", "true", "true | false", "divide the sum of the gradients by the number of ranks", CheckListed},
    {"hierarchical", "false", "true | false", "reduce inside each node first; no effect on one node", CheckListed},
    {"schedule", "auto", "auto, or a schedule of all_reduce", "how the bucket's bytes move", CheckSchedule},
};

// OK where the codec casts the bucket (f32), or the bucket is of the codec's own type and travels as it would without
// the codec; not where the codec rounds at random, which would change the result of the exchange.
absl::Status CheckCast(const CodecChoice& codec, DType dtype) {
  const bool at_random = codec.options.rounding == Rounding::kStochastic;
  if (dtype == DType::kF32 || (dtype == codec.codec->linear && !at_random)) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat("codec=", codec.codec->name, at_random ? ",rounding=stochastic" : "",
                                               " casts gradients of f32, and these are ", Name(dtype),
                                               "; use codec=none"));
}

absl::Status CheckCodec(const Strategy& strategy, DType dtype, const PlanOptions& plan) {
  const CodecChoice codec = CodecOf(strategy);
  if (codec.codec == nullptr) return absl::OkStatus();
  if (!codec.codec->linear.has_value()) {
    return absl::UnimplementedError(
        absl::StrCat("codec=", codec.codec->name,
                     " is no cast, so its messages cannot be added; use bytegrad:codec=", codec.codec->name));
  }
  if (absl::Status valid = CheckCast(codec, dtype); !valid.ok()) return valid;
  if (strategy.option("schedule") == "auto") return absl::OkStatus();
  if (codec.options.rounding == Rounding::kStochastic) {
    return absl::UnimplementedError(absl::StrCat("schedule=", strategy.option("schedule"),
                                                 " adds up values that are rounded to the nearest; for "
                                                 "rounding=stochastic use schedule=auto"));
  }
  if (strategy.flag("hierarchical") && plan.has_hierarchy()) {
    return absl::UnimplementedError(
        "between nodes a schedule would round the sums of nodes to the codec's type and the average once more; use "
        "schedule=auto, or hierarchical=false");
  }
  return absl::OkStatus();
}

// The options for the `size` ranks that take part in the schedule: between nodes one rank of each node.
PlanOptions AmongParticipants(const Strategy& strategy, int size, PlanOptions plan) {
  if (!strategy.flag("hierarchical") || !plan.has_hierarchy()) return plan;
  plan.nodes.resize(static_cast<std::size_t>(size));
  std::iota(plan.nodes.begin(), plan.nodes.end(), 0);
  return plan;
}

absl::Status Supports(const Strategy& strategy, const CollectiveSpec& bucket, int size, const PlanOptions& plan) {
  if (absl::Status valid = CheckCodec(strategy, bucket.dtype, plan); !valid.ok()) return valid;
  const PlanOptions among = AmongParticipants(strategy, size, plan);
  if (strategy.option("schedule") == "auto") return CheckServed(bucket, size, among);
  absl::StatusOr<const Schedule*> schedule = FindSchedule(Collective::kAllReduce, strategy.option("schedule"));
  if (!schedule.ok()) return schedule.status();
  absl::Status supported = (*schedule)->supports(bucket, size, among);
  if (supported.ok()) return supported;
  return absl::Status(supported.code(), absl::StrCat("schedule=", (*schedule)->name, ": ", supported.message()));
}

// Casts the bucket to `dtype`, reduces it by `schedule`, and casts it back.
void CastAndReduce(const Schedule& schedule, DType dtype, PlanBuilder& b) {
  const Ref cast = b.Scratch(dtype, b.out().count());
  CollectiveSpec spec = b.spec();
  spec.dtype = dtype;
  b.Copy(cast, b.out());
  b.Within(spec, cast, cast, [&](PlanBuilder& part) { BuildPart(schedule, part); });
  b.Copy(b.out(), cast);
}

void Build(const Strategy& strategy, int /*round*/, PlanBuilder& b) {
  const CodecChoice codec = CodecOf(strategy);
  if (codec.codec != nullptr && b.size() > 1 && b.spec().dtype == DType::kF32) {
    if (strategy.option("schedule") == "auto") {
      return CompressedAllReduce(b, {.codec = codec, .average = strategy.flag("average")});
    }
    return CastAndReduce(**FindSchedule(Collective::kAllReduce, strategy.option("schedule")), *codec.codec->linear, b);
  }
  if (strategy.option("schedule") == "auto") return BuildSelected(b);
  BuildPart(**FindSchedule(Collective::kAllReduce, strategy.option("schedule")), b);
}

}  // namespace
}  // namespace tutti

TUTTI_ALGORITHM(gradient_allreduce) = {
    .name = "gradient_allreduce",
    .summary = "Average the gradients exactly while backward runs",
    .cost = "2(n-1)/n · N bytes",
    .exchanges = tutti::Exchanges::kGradients,
    .phase = tutti::Phase::kBackward,
    .options = tutti::kOptions,
    .codec = "none",
    .supports = tutti::Supports,
    .build = tutti::Build,
};
