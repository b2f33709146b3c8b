// Reduce-scatter, staged: for buffers that no peer can map, through slots in scratch that peers read.
//
// In every stage each rank copies a part of every other rank's block to its slot, all meet, and each rank reduces that
// part of its block from all slots, and its own part from where it lies, into its output. Operands are combined in rank
// order. With n ranks, blocks of C bytes and k = n·C / (2 segments) stages: k+1 rounds of signals, (n-1)·C bytes read
// from peers and as many copied to slots.
#include "tutti/schedule.h"
#include "tutti/schedules/stages.h"

namespace tutti::schedules {
namespace {

void Build(PlanBuilder& b) {
  const std::int64_t block = b.spec().count;
  if (block == 0) return;
  if (b.size() == 1) return b.Copy(b.out(), b.in());
  const DType dtype = b.in().dtype;
  const Stages stages(b, dtype, block, b.size());
  const SlotsOfParts slots(b, dtype, stages, b.size());
  const auto fill = [&](std::int64_t stage) { FillForEveryPeer(b, stages, slots, stage); };
  const auto reduce = [&](std::int64_t stage) {
    std::vector<Ref> srcs = OnEveryRank(b, slots.Part(stage, b.rank()));
    srcs[static_cast<std::size_t>(b.rank())] = stages.Of(stage, b.in(), b.rank() * block);
    b.Reduce({stages.Of(stage, b.out())}, srcs, b.spec().op);
  };
  FillThenRead(b, stages, fill, reduce);
}

}  // namespace
}  // namespace tutti::schedules

TUTTI_SCHEDULE(reduce_scatter, staged) = {
    .collective = tutti::Collective::kReduceScatter,
    .name = "staged",
    .summary =
        "stage by stage, all copy a part of every block to mapped scratch, and every rank reduces its own part of all",
    .cost =
        "1 + n·C/(2 segments) rounds of signals, at most 257 (fewer from 14 ranks on), (n-1)·C bytes (C: one block)",
    .supports = tutti::SupportsMappedPeers,
    .build = tutti::schedules::Build,
    .touches_only_scratch_of_peers = true,
    .competes_for_mapped_buffers = false,
};
