// Scatter, direct: the root writes every rank's block into the mapped output of that rank.
//
// All ranks meet, the root copies all blocks, all meet again. Steps: 2n at every rank but the root, 3n at the root, for
// n ranks. Bytes written by the root: (n-1)·C, C being one block. The root writes, and the others do not read, because
// the others do not know whether the root is in place.
#include "algorithms/schedules/chunks.h"
#include "algorithms/schedules/mapped_peers.h"
#include "tutti/schedule.h"

namespace tutti::schedules {
namespace {

void Build(PlanBuilder& b) {
  if (b.spec().count == 0) return;
  if (b.size() == 1) return b.Copy(b.out(), b.in());

  MeetAll(b);
  if (b.rank() == b.spec().root) {
    const std::vector<Ref> blocks = ChunksOf(b.in(), b.size());
    const Ref output = {.space = Space::kOut, .dtype = b.spec().dtype, .bytes = blocks[0].bytes};
    for (Rank rank = 0; rank < b.size(); ++rank) {
      b.Copy(rank == b.rank() ? b.out() : output.At(rank), blocks[rank]);
    }
  }
  MeetAll(b);
}

}  // namespace
}  // namespace tutti::schedules

TUTTI_SCHEDULE(scatter, direct) = {
    .collective = tutti::Collective::kScatter,
    .name = "direct",
    .summary = "the root writes every block into the mapped output of its rank",
    .cost = "2 rounds of signals, (n-1)·C bytes by the root (C: one block)",
    .supports = tutti::SupportsMappedPeers,
    .build = tutti::schedules::Build,
};
