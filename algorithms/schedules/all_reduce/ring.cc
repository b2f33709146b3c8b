// All-reduce, ring (Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms for clusters of workstations").
//
// The buffer of S bytes is cut into one chunk per rank. A reduce-scatter around the ring leaves rank r with the result
// of chunk r, then an all-gather around the ring carries the results to every rank.
//
// Steps per rank: 2(n-1) for n ranks, each one chunk sent and one received. Bytes sent: 2·(n-1)/n·S, the minimum for
// messages (16-bit sums, averages and products: 3·(n-1)/n·S, since partials are fp32). Latency grows with n, so the
// ring serves large buffers; all links carry equal load.
#include "tutti/schedule.h"
#include "tutti/schedules/chunks.h"
#include "tutti/schedules/ring_steps.h"

namespace tutti::schedules {
namespace {

void Build(PlanBuilder& b) {
  if (b.size() == 1) return b.Copy(b.out(), b.in());

  const std::vector<Ref> inputs = ChunksOf(b.in(), b.size());
  const std::vector<Ref> results = ChunksOf(b.out(), b.size());
  RingReduceScatter(b, inputs, results[b.rank()]);
  RingAllGather(b, results);
}

}  // namespace
}  // namespace tutti::schedules

TUTTI_SCHEDULE(all_reduce, ring) = {
    .collective = tutti::Collective::kAllReduce,
    .name = "ring",
    .summary = "reduce-scatter, then all-gather, both around a ring of messages",
    .cost = "2(n-1) steps, 2·(n-1)/n·S bytes",
    .supports = tutti::SupportsAll,
    .build = tutti::schedules::Build,
};
