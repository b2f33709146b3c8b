// Scatter, linear: the root sends every rank its block. No block travels twice and nothing is copied on the way; the
// bandwidth of the root's link limits every scatter.
//
// Steps: 1 by every rank but the root, n-1 at the root, all at once. Bytes sent: (n-1)·C by the root, C being one
// block.
#include "tutti/schedule.h"
#include "tutti/schedules/chunks.h"

namespace tutti::schedules {
namespace {

void Build(PlanBuilder& b) {
  if (b.rank() != b.spec().root) return b.Recv(b.spec().root, b.out());

  const std::vector<Ref> blocks = ChunksOf(b.in(), b.size());
  b.Copy(b.out(), blocks[b.rank()]);
  for (Rank rank = 0; rank < b.size(); ++rank) {
    if (rank != b.rank()) b.Send(rank, blocks[rank]);
  }
}

}  // namespace
}  // namespace tutti::schedules

TUTTI_SCHEDULE(scatter, linear) = {
    .collective = tutti::Collective::kScatter,
    .name = "linear",
    .summary = "the root sends every rank its block",
    .cost = "1 step (root: n-1 at once), (n-1)·C bytes by the root (C: one block)",
    .supports = tutti::SupportsAll,
    .build = tutti::schedules::Build,
};
