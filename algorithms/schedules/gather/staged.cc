// Gather, staged: for buffers that no peer can map, through slots in scratch that peers read.
//
// In every stage each rank but the root copies a part of its block to its slot, all meet, and the root reads the parts.
// With n ranks, blocks of C bytes and k = n·C / (2 segments) stages: k+1 rounds of signals, C bytes copied to slots by
// every rank but the root, and (n-1)·C bytes read by the root.
#include "tutti/schedule.h"
#include "tutti/schedules/stages.h"

namespace tutti::schedules {
namespace {

void Build(PlanBuilder& b) {
  const std::int64_t block = b.spec().count;
  if (block == 0) return;
  const bool is_root = b.rank() == b.spec().root;
  if (b.size() == 1) return b.Copy(b.out(), b.in());
  const DType dtype = b.spec().dtype;
  const Stages stages(b, dtype, block, b.size());
  const SlotsOfParts slots(b, dtype, stages, 1);
  const auto fill = [&](std::int64_t stage) {
    if (!is_root) b.Copy(slots.Part(stage), stages.Of(stage, b.in()));
  };
  const auto read = [&](std::int64_t stage) {
    if (is_root) ReadFromEveryPeer(b, stages, slots, stage, 0);
  };
  FillThenRead(b, stages, fill, read);
  if (is_root) b.Copy(b.out().Elements(b.rank() * block, block), b.in());
}

}  // namespace
}  // namespace tutti::schedules

TUTTI_SCHEDULE(gather, staged) = {
    .collective = tutti::Collective::kGather,
    .name = "staged",
    .summary = "stage by stage, every rank copies a part of its block to mapped scratch and the root reads the parts",
    .cost =
        "1 + n·C/(2 segments) rounds of signals, at most 257 (fewer from 14 ranks on), (n-1)·C bytes (C: one block)",
    .supports = tutti::SupportsMappedPeers,
    .build = tutti::schedules::Build,
    .touches_only_scratch_of_peers = true,
    .competes_for_mapped_buffers = false,
};
