// Scatter, direct: every rank copies its block from the mapped input of the root.
//
// All ranks meet, every rank copies its block, all meet again. Steps per rank: 2n+1 for n ranks. Bytes read from the
// root: C, one block, by every other rank, at the same time.
#include "tutti/schedule.h"
#include "tutti/schedules/mapped_peers.h"

namespace tutti::schedules {
namespace {

void Build(PlanBuilder& b) {
  if (b.spec().count == 0) return;
  if (b.size() > 1) MeetAll(b);
  b.Copy(b.out(), InputOfRoot(b).Elements(b.rank() * b.spec().count, b.spec().count));
  if (b.size() > 1) MeetAll(b);
}

}  // namespace
}  // namespace tutti::schedules

TUTTI_SCHEDULE(scatter, direct) = {
    .collective = tutti::Collective::kScatter,
    .name = "direct",
    .summary = "every rank copies its block from the mapped input of the root",
    .cost = "2 rounds of signals, C bytes (C: one block)",
    .supports = tutti::SupportsMappedPeers,
    .build = tutti::schedules::Build,
    .only_copies_from_peers = true,
};
