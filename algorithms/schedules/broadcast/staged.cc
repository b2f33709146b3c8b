// Broadcast, staged: for buffers that no peer can map, through slots in scratch that peers read.
//
// In every stage the root copies a part of its buffer to its slot, all meet, and every other rank reads the part.
// With buffers of S bytes and k = S / (2 segments) stages: k+1 rounds of signals, S bytes copied to slots by the root,
// and S bytes read by every other rank.
#include "tutti/schedule.h"
#include "tutti/schedules/stages.h"

namespace tutti::schedules {
namespace {

void Build(PlanBuilder& b) {
  const std::int64_t count = b.spec().count;
  if (count == 0) return;
  const bool is_root = b.rank() == b.spec().root;
  if (b.size() == 1) return b.Copy(b.out(), b.in());
  const DType dtype = b.spec().dtype;
  const Stages stages(b, dtype, count, 1);
  const SlotsOfParts slots(b, dtype, stages, 1);
  const auto fill = [&](std::int64_t stage) {
    if (is_root) b.Copy(slots.Part(stage), stages.Of(stage, b.in()));
  };
  const auto read = [&](std::int64_t stage) {
    if (!is_root) b.Copy(stages.Of(stage, b.out()), slots.Part(stage).At(b.spec().root));
  };
  FillThenRead(b, stages, fill, read);
  if (is_root) b.Copy(b.out(), b.in());
}

}  // namespace
}  // namespace tutti::schedules

TUTTI_SCHEDULE(broadcast, staged) = {
    .collective = tutti::Collective::kBroadcast,
    .name = "staged",
    .summary =
        "stage by stage, the root copies a part of its buffer to mapped scratch and every other rank reads the part",
    .cost = "1 + S/(2 segments) rounds of signals, at most 257 (fewer from 14 ranks on), S bytes",
    .supports = tutti::SupportsMappedPeers,
    .build = tutti::schedules::Build,
    .touches_only_scratch_of_peers = true,
    .competes_for_mapped_buffers = false,
};
