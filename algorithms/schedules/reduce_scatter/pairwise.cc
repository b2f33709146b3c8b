// Reduce-scatter, pairwise exchange (Thakur, Rabenseifner and Gropp 2005, §4.3): every rank sends every other rank the
// chunk that the other rank is to have, and combines what it has received.
//
// The n-1 messages of a rank do not wait for each other. Operands are combined in rank order.
//
// Steps per rank: 1, of n-1 messages of one chunk (one rank's output, C bytes) at once. Bytes sent: (n-1)·C, the
// minimum, also for 16-bit sums, averages and products: partials (partials.h) never travel. The schedule serves chunks
// of few bytes where the way from node to node is long, and long chunks of 16-bit types.
#include "absl/status/status.h"
#include "tutti/schedule.h"
#include "tutti/schedules/chunks.h"
#include "tutti/schedules/pairwise_exchange.h"
#include "tutti/schedules/partials.h"

namespace tutti::schedules {
namespace {

void Build(PlanBuilder& b) {
  if (b.size() == 1) return b.Copy(b.out(), b.in());
  ReducePairwise(b, ChunksOf(b.in(), b.size()), b.out());
}

// Long chunks compete where partials are wider than elements, because other schedules send more bytes then.
absl::Status Competes(const CollectiveSpec& spec, int size, const PlanOptions& options) {
  return AccumulatesWider(spec, size) ? FewRanksBetweenNodes(size, options) : PairwiseCompetes(spec, size, options);
}

}  // namespace
}  // namespace tutti::schedules

TUTTI_SCHEDULE(reduce_scatter, pairwise) = {
    .collective = tutti::Collective::kReduceScatter,
    .name = "pairwise",
    .summary = "every rank sends each rank its chunk at once",
    .cost = "1 step of n-1 messages, (n-1)·C bytes (C: one rank's output)",
    .supports = tutti::SupportsAll,
    .build = tutti::schedules::Build,
    .competes = tutti::schedules::Competes,
};
