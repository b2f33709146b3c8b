// Barrier, direct: every rank signals, then waits for the signals of all others, in mapped memory.
//
// Steps per rank: n for n ranks. Nothing but signals travels.
#include "tutti/schedule.h"
#include "tutti/schedules/mapped_peers.h"

namespace tutti::schedules {
namespace {

void Build(PlanBuilder& b) {
  if (b.size() > 1) MeetAll(b);
}

}  // namespace
}  // namespace tutti::schedules

TUTTI_SCHEDULE(barrier, direct) = {
    .collective = tutti::Collective::kBarrier,
    .name = "direct",
    .summary = "one round of signals in mapped memory",
    .cost = "1 round of signals",
    .supports = tutti::SupportsMappedPeers,
    .build = tutti::schedules::Build,
};
