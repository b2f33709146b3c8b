// All-gather, ring: the second half of the ring all-reduce (Patarasuk and Yuan 2009).
//
// The output holds one block of C bytes per rank. Every rank sends its own block to the next rank, then passes on each
// block that it receives, until all blocks have gone around.
//
// Steps per rank: n-1 for n ranks, each one block sent and one received. Bytes sent: (n-1)·C, the minimum.
#include "tutti/schedule.h"
#include "tutti/schedules/chunks.h"
#include "tutti/schedules/ring_steps.h"

namespace tutti::schedules {
namespace {

void Build(PlanBuilder& b) {
  const std::vector<Ref> blocks = ChunksOf(b.out(), b.size());
  b.Copy(blocks[b.rank()], b.in());
  RingAllGather(b, blocks);
}

}  // namespace
}  // namespace tutti::schedules

TUTTI_SCHEDULE(all_gather, ring) = {
    .collective = tutti::Collective::kAllGather,
    .name = "ring",
    .summary = "blocks travel around a ring of messages",
    .cost = "n-1 steps, (n-1)·C bytes (C: one block)",
    .supports = tutti::SupportsAll,
    .build = tutti::schedules::Build,
};
