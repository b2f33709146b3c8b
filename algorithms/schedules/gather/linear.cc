// Gather, linear: every rank sends its block to the root, which receives each block in its place. No block travels
// twice and nothing is copied on the way; the bandwidth of the root's link limits every gather.
//
// Steps: 1 by every rank but the root, n-1 at the root, all at once. Bytes sent: C, one block, by every rank but the
// root.
#include "tutti/schedule.h"
#include "tutti/schedules/chunks.h"

namespace tutti::schedules {
namespace {

void Build(PlanBuilder& b) {
  if (b.rank() != b.spec().root) return b.Send(b.spec().root, b.in());

  const std::vector<Ref> blocks = ChunksOf(b.out(), b.size());
  b.Copy(blocks[b.rank()], b.in());
  for (Rank rank = 0; rank < b.size(); ++rank) {
    if (rank != b.rank()) b.Recv(rank, blocks[rank]);
  }
}

}  // namespace
}  // namespace tutti::schedules

TUTTI_SCHEDULE(gather, linear) = {
    .collective = tutti::Collective::kGather,
    .name = "linear",
    .summary = "every rank sends its block to the root",
    .cost = "1 step (root: n-1 at once), C bytes (C: one block)",
    .supports = tutti::SupportsAll,
    .build = tutti::schedules::Build,
};
