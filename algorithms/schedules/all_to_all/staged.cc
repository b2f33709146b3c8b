// All-to-all, staged: for buffers that no peer can map, through slots in scratch that peers read.
//
// In every stage each rank copies a part of its block for every other rank to its slot, all meet, and each rank reads
// its own parts from the slots of all others. With n ranks, blocks of C bytes and k = n·C / (2 segments) stages: k+1
// rounds of signals, (n-1)·C bytes read from peers and as many copied to slots.
#include "tutti/schedule.h"
#include "tutti/schedules/stages.h"

namespace tutti::schedules {
namespace {

void Build(PlanBuilder& b) {
  const std::int64_t block = b.spec().count;
  if (block == 0) return;
  const auto block_of = [&](const Ref& buffer, Rank rank) { return buffer.Elements(rank * block, block); };
  if (b.size() == 1) return b.Copy(b.out(), b.in());
  const DType dtype = b.in().dtype;
  const Stages stages(b, dtype, block, b.size());
  const SlotsOfParts slots(b, dtype, stages, b.size());
  const auto fill = [&](std::int64_t stage) { FillForEveryPeer(b, stages, slots, stage); };
  const auto read = [&](std::int64_t stage) { ReadFromEveryPeer(b, stages, slots, stage, b.rank()); };
  FillThenRead(b, stages, fill, read);
  b.Copy(block_of(b.out(), b.rank()), block_of(b.in(), b.rank()));
}

}  // namespace
}  // namespace tutti::schedules

TUTTI_SCHEDULE(all_to_all, staged) = {
    .collective = tutti::Collective::kAllToAll,
    .name = "staged",
    .summary = "stage by stage, every rank copies a part of every block to mapped scratch and reads what is for it",
    .cost =
        "1 + n·C/(2 segments) rounds of signals, at most 257 (fewer from 14 ranks on), (n-1)·C bytes (C: one block)",
    .supports = tutti::SupportsMappedPeers,
    .build = tutti::schedules::Build,
    .touches_only_scratch_of_peers = true,
    .competes_for_mapped_buffers = false,
};
