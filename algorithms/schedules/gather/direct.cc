// Gather, direct: every rank writes its block into the mapped output of the root.
//
// All ranks meet, every rank copies its block, all meet again. Steps per rank: 2n+1 for n ranks. Bytes written to the
// root: C, one block, by every other rank, at the same time.
#include "tutti/schedule.h"
#include "tutti/schedules/mapped_peers.h"

namespace tutti::schedules {
namespace {

void Build(PlanBuilder& b) {
  if (b.spec().count == 0) return;
  if (b.size() > 1) MeetAll(b);
  b.Copy(OutputOfRoot(b).Elements(b.rank() * b.spec().count, b.spec().count), b.in());
  if (b.size() > 1) MeetAll(b);
}

}  // namespace
}  // namespace tutti::schedules

TUTTI_SCHEDULE(gather, direct) = {
    .collective = tutti::Collective::kGather,
    .name = "direct",
    .summary = "every rank writes its block into the mapped output of the root",
    .cost = "2 rounds of signals, C bytes (C: one block)",
    .supports = tutti::SupportsMappedPeers,
    .build = tutti::schedules::Build,
};
