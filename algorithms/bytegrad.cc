// bytegrad: every rank ends with (1/n) Σ g, exchanged in 8 bits per element (compressed_all_reduce.h). After Bagua's
// ByteGrad (https://arxiv.org/abs/2107.01499).
#include "absl/status/status.h"
#include "algorithms/compressed_all_reduce.h"
#include "tutti/algorithm.h"
#include "tutti/bucket_support.h"
#include "tutti/selector.h"

namespace tutti {
namespace {

constexpr AlgorithmOption kOptions[] = {
    {"average", "true", "true | false", "divide the sum of the gradients by the number of ranks", CheckListed},
    {"hierarchical", "true", "true | false", "reduce losslessly inside each node; no effect on one node", CheckListed},
    {"error_feedback", "false", "true | false", "add what a message has lost to the next one", CheckListed},
};

absl::Status Supports(const Strategy& /*strategy*/, const CollectiveSpec& bucket, int size, const PlanOptions& plan) {
  absl::Status valid = CheckEncodable("gradients", bucket.dtype, " (use gradient_allreduce)");
  if (!valid.ok()) return valid;
  return CheckServed(bucket, size, plan);
}

void Build(const Strategy& strategy, int /*round*/, PlanBuilder& b) {
  CompressedAllReduce(b, {.codec = CodecOf(strategy),
                          .average = strategy.flag("average"),
                          .error_feedback = strategy.flag("error_feedback")});
}

}  // namespace
}  // namespace tutti

TUTTI_ALGORITHM(bytegrad) = {
    .name = "bytegrad",
    .summary = "Average the gradients in 8 bits per element while backward runs",
    .cost = "2(n-1)/n · N/4 bytes; short buckets between hosts (n-1) · N/4",
    .exchanges = tutti::Exchanges::kGradients,
    .phase = tutti::Phase::kBackward,
    .options = tutti::kOptions,
    .codec = "uint8_block",
    .supports = tutti::Supports,
    .build = tutti::Build,
};
