// qadam: Adam whose ranks exchange momentum in 8 bits per element, once its variance has settled.
//
//   warm-up      gradients are averaged exactly; every rank does what Adam does
//   afterwards   every rank blends its gradient into the momentum, and the ranks average the momentum, compressed
//                (compressed_all_reduce.h); the variance is frozen
//
// include/tutti/qadam.h has the optimizer's formulas and says when the warm-up ends. After Bagua's QAdam (1-bit Adam,
// Tang et al., 2021, https://arxiv.org/abs/2102.02888).
#include "tutti/qadam.h"

#include "absl/status/status.h"
#include "algorithms/compressed_all_reduce.h"
#include "tutti/algorithm.h"
#include "tutti/bucket_support.h"
#include "tutti/selector.h"

namespace tutti {
namespace {

constexpr AlgorithmOption kOptions[] = {
    {"warmup_steps", "100", "1, 2, …", "steps that average gradients exactly, before the variance is frozen",
     CheckPositive},
    {"freeze", "steps", "steps | variance",
     "the warm-up ends after warmup_steps; or later, when the norm of the variance has stopped changing", CheckListed},
    {"hierarchical", "true", "true | false", "reduce losslessly inside each node; no effect on one node", CheckListed},
    {"error_feedback", "false", "true | false", "add what a message has lost to the next one", CheckListed},
};

int Rounds(const Strategy& /*strategy*/, int /*size*/) { return 2; }

// The round of each step, if the warm-up ends after warmup_steps; the optimizer may prolong it.
RoundOfStep RoundsOfSteps(const Strategy& strategy, int /*size*/) {
  const std::int64_t warmup_steps = strategy.integer("warmup_steps");
  return [warmup_steps](std::int64_t step) { return step < warmup_steps ? kQAdamWarmUp : kQAdamCompressed; };
}

absl::Status Supports(const Strategy& /*strategy*/, const CollectiveSpec& bucket, int size, const PlanOptions& plan) {
  if (absl::Status valid = CheckEncodable("momentum", bucket.dtype); !valid.ok()) return valid;
  return CheckServed(bucket, size, plan);
}

void Build(const Strategy& strategy, int round, PlanBuilder& b) {
  if (round == kQAdamWarmUp) {
    BuildSelected(b);
    return;
  }
  CompressedAllReduce(b,
                      {.codec = CodecOf(strategy), .average = true, .error_feedback = strategy.flag("error_feedback")});
}

}  // namespace
}  // namespace tutti

TUTTI_ALGORITHM(qadam) = {
    .name = "qadam",
    .summary = "Average the momentum of Adam in 8 bits per element, after a warm-up that averages gradients exactly",
    .cost = "2(n-1)/n · N bytes, after the warm-up as bytegrad",
    .exchanges = tutti::Exchanges::kMomentum,
    .phase = tutti::Phase::kBackward,
    .options = tutti::kOptions,
    .codec = "uint8_block",
    .rounds = tutti::Rounds,
    .round_of = tutti::RoundsOfSteps,
    .supports = tutti::Supports,
    .build = tutti::Build,
    .optimizer = "QAdam (tutti/qadam.h, or tutti/torch/qadam.h)",
};
