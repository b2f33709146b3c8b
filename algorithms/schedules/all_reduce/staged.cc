// All-reduce, staged: for buffers that no peer can map, through slots in scratch that peers read.
//
// The steps are those of ReduceInStages (stages.h). Operands are combined in rank order, so every rank ends with the
// same bits. With n ranks, inputs of S bytes and k = S / (2 segments) stages: k+2 rounds of signals, 2·(n-1)/n·S bytes
// read from peers, and S bytes copied to slots.
#include "tutti/schedule.h"
#include "tutti/schedules/stages.h"

namespace tutti::schedules {
namespace {

void Build(PlanBuilder& b) {
  if (b.in().bytes == 0) return;
  if (b.size() == 1) return b.Copy(b.out(), b.in());
  ReduceInStages(b);
}

}  // namespace
}  // namespace tutti::schedules

TUTTI_SCHEDULE(all_reduce, staged) = {
    .collective = tutti::Collective::kAllReduce,
    .name = "staged",
    .summary =
        "stage by stage, every rank reduces its chunk of what all have copied to mapped scratch, and reads the others' "
        "chunks",
    .cost = "2 + S/(2 segments) rounds of signals, at most 258 (fewer from 14 ranks on), 2·(n-1)/n·S bytes",
    .supports = tutti::SupportsMappedPeers,
    .build = tutti::schedules::Build,
    .touches_only_scratch_of_peers = true,
    .competes_for_mapped_buffers = false,
};
