// Scatter, staged: for buffers that no peer can map, through slots in scratch that peers read.
//
// In every stage the root copies a part of every other rank's block to its slot, all meet, and each rank reads its
// part. With n ranks, blocks of C bytes and k = n·C / (2 segments) stages: k+1 rounds of signals, (n-1)·C bytes copied
// to slots by the root, and C bytes read by every other rank.
#include "tutti/schedule.h"
#include "tutti/schedules/stages.h"

namespace tutti::schedules {
namespace {

void Build(PlanBuilder& b) {
  const std::int64_t block = b.spec().count;
  if (block == 0) return;
  const Rank root = b.spec().root;
  const bool is_root = b.rank() == root;
  if (b.size() == 1) return b.Copy(b.out(), b.in());
  const DType dtype = b.spec().dtype;
  const Stages stages(b, dtype, block, b.size());
  const SlotsOfParts slots(b, dtype, stages, b.size());
  const auto fill = [&](std::int64_t stage) {
    if (is_root) FillForEveryPeer(b, stages, slots, stage);
  };
  const auto read = [&](std::int64_t stage) {
    if (!is_root) b.Copy(stages.Of(stage, b.out()), slots.Part(stage, b.rank()).At(root));
  };
  FillThenRead(b, stages, fill, read);
  if (is_root) b.Copy(b.out(), b.in().Elements(root * block, block));
}

}  // namespace
}  // namespace tutti::schedules

TUTTI_SCHEDULE(scatter, staged) = {
    .collective = tutti::Collective::kScatter,
    .name = "staged",
    .summary =
        "stage by stage, the root copies a part of every block to mapped scratch and every other rank reads its own",
    .cost =
        "1 + n·C/(2 segments) rounds of signals, at most 257 (fewer from 14 ranks on), (n-1)·C bytes (C: one block)",
    .supports = tutti::SupportsMappedPeers,
    .build = tutti::schedules::Build,
    .touches_only_scratch_of_peers = true,
    .competes_for_mapped_buffers = false,
};
