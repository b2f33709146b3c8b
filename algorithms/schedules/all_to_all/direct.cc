// All-to-all, direct: every rank copies its blocks from the mapped inputs of all others.
//
// One-shot (inputs of at most OneShotBytes): every rank copies its input to scratch, all ranks meet, and every rank
// copies its blocks from the scratches. Larger inputs: all ranks meet, every rank copies its blocks from the inputs,
// all ranks meet again. Rank r begins with the block of rank r+1, so that the ranks read from different memories.
//
// Steps per rank: 2n+1 (one-shot) or 3n for n ranks. Bytes read from peers: (n-1)·C, C being one block.
#include "tutti/schedule.h"
#include "tutti/schedules/mapped_peers.h"
#include "tutti/schedules/ring_steps.h"

namespace tutti::schedules {
namespace {

void Build(PlanBuilder& b) {
  if (b.in().bytes == 0) return;
  if (b.size() == 1) return b.Copy(b.out(), b.in());

  const std::int64_t count = b.spec().count;
  const bool one_shot = b.in().bytes <= OneShotBytes(b);
  const Ref input = one_shot ? InputInScratch(b) : b.in();
  MeetAll(b);
  for (int distance = 0; distance < b.size(); ++distance) {
    const Rank from = OnRing(b.rank() + 1 + distance, b.size());
    b.Copy(b.out().Elements(from * count, count), OnRank(b, from, input.Elements(b.rank() * count, count)));
  }
  if (!one_shot) MeetAll(b);
}

}  // namespace
}  // namespace tutti::schedules

TUTTI_SCHEDULE(all_to_all, direct) = {
    .collective = tutti::Collective::kAllToAll,
    .name = "direct",
    .summary = "every rank copies its blocks from all mapped inputs",
    .cost = "1 or 2 rounds of signals, (n-1)·C bytes (C: one block)",
    .supports = tutti::SupportsMappedPeers,
    .build = tutti::schedules::Build,
    .only_copies_from_peers = true,
};
