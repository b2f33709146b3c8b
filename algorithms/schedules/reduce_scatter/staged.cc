// Reduce-scatter, staged: for buffers that no peer can map, through slots in scratch that peers read.
//
// In every stage each rank copies a part of every other rank's block to its slot, all meet, and each rank reduces that
// part of its block from all slots, and its own part from where it lies, into its output. Operands are combined in rank
// order. With n ranks, blocks of C bytes and k = n·C / (2 segments) stages: k rounds of signals, (n-1)·C bytes read
// from peers and as many copied to slots.
#include "algorithms/schedules/stages.h"
#include "tutti/schedule.h"

namespace tutti::schedules {
namespace {

void Build(PlanBuilder& b) {
  const std::int64_t block = b.spec().count;
  if (block == 0) return;
  if (b.size() == 1) return b.Copy(b.out(), b.in());
  const DType dtype = b.in().dtype;
  const Stages stages(b, dtype, block, b.size());
  const Slots slots(b, dtype, stages.length() * b.size());
  const auto part_for = [&](std::int64_t stage, Rank rank) {
    return slots[stage].Elements(rank * stages.length(), stages[stage].count);
  };
  const auto part_of_input = [&](std::int64_t stage, Rank rank) {
    return b.in().Elements(rank * block + stages[stage].begin, stages[stage].count);
  };
  const auto fill = [&](std::int64_t stage) {
    for (int i = 1; i < b.size(); ++i) {
      const Rank peer = (b.rank() + i) % b.size();
      b.Copy(part_for(stage, peer), part_of_input(stage, peer));
    }
  };
  const auto reduce = [&](std::int64_t stage) {
    std::vector<Ref> srcs = OnEveryRank(b, part_for(stage, b.rank()));
    srcs[static_cast<std::size_t>(b.rank())] = part_of_input(stage, b.rank());
    b.Reduce({b.out().Elements(stages[stage].begin, stages[stage].count)}, srcs, b.spec().op);
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
    .cost = "n·C/(2 segments) rounds of signals, (n-1)·C bytes (C: one block)",
    .supports = tutti::SupportsMappedPeers,
    .build = tutti::schedules::Build,
    .touches_only_scratch_of_peers = true,
};
