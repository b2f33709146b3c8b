// Reduce-scatter, ring: the first half of the ring all-reduce (Patarasuk and Yuan 2009).
//
// The input holds one chunk per rank. The partial of chunk c travels around the ring, from rank c+1 to rank c, and
// every rank on its way adds its own part.
//
// Steps per rank: n-1 for n ranks, each one chunk (one rank's output, C bytes) sent and one received. Bytes sent:
// (n-1)·C (16-bit sums, averages and products: 2(n-1)·C, since partials are fp32).
#include "tutti/schedule.h"
#include "tutti/schedules/chunks.h"
#include "tutti/schedules/ring_steps.h"

namespace tutti::schedules {
namespace {

void Build(PlanBuilder& b) {
  if (b.size() == 1) return b.Copy(b.out(), b.in());
  RingReduceScatter(b, ChunksOf(b.in(), b.size()), b.out());
}

}  // namespace
}  // namespace tutti::schedules

TUTTI_SCHEDULE(reduce_scatter, ring) = {
    .collective = tutti::Collective::kReduceScatter,
    .name = "ring",
    .summary = "partials travel around a ring of messages, each to its own rank",
    .cost = "n-1 steps, (n-1)·C bytes (C: one rank's output)",
    .supports = tutti::SupportsAll,
    .build = tutti::schedules::Build,
};
