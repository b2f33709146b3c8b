// All-gather, direct: ranks copy through mapped memory.
//
// One-shot (outputs of at most OneShotBytes): every rank copies its block to scratch, all ranks meet, and every rank
// copies all blocks from the scratches to its output. Larger outputs: all ranks meet, every rank writes its block into
// all outputs, all ranks meet again.
//
// Steps per rank: 2n+1 for n ranks, one-shot or not. Bytes read from or written to peers: (n-1)·C, C being one block.
#include "tutti/schedule.h"
#include "tutti/schedules/mapped_peers.h"

namespace tutti::schedules {
namespace {

void Build(PlanBuilder& b) {
  if (b.out().bytes == 0) return;
  const std::int64_t count = b.spec().count;
  const Ref own_block = b.out().Elements(b.rank() * count, count);
  if (b.size() == 1) return b.Copy(own_block, b.in());

  if (b.out().bytes <= OneShotBytes(b)) {
    const Ref input = InputInScratch(b);
    MeetAll(b);
    for (Rank rank = 0; rank < b.size(); ++rank) {
      b.Copy(b.out().Elements(rank * count, count), OnRank(b, rank, input));
    }
  } else {
    MeetAll(b);
    b.Copy(OnEveryRank(b, own_block), b.in());
    MeetAll(b);
  }
}

}  // namespace
}  // namespace tutti::schedules

TUTTI_SCHEDULE(all_gather, direct) = {
    .collective = tutti::Collective::kAllGather,
    .name = "direct",
    .summary = "every rank writes its block into all mapped outputs",
    .cost = "1 or 2 rounds of signals, (n-1)·C bytes (C: one block)",
    .supports = tutti::SupportsMappedPeers,
    .build = tutti::schedules::Build,
};
