// Broadcast, eager: the root copies its buffer to scratch, signals and goes on, without waiting for the other ranks;
// every other rank waits for the root and copies from that scratch.
//
// Steps of the root: 2 or, out of place, 3; of every other rank 2. Bytes copied by the root: S, the buffer, and read
// from the root: S by every other rank.
#include "tutti/schedule.h"
#include "tutti/schedules/mapped_peers.h"

namespace tutti::schedules {
namespace {

void Build(PlanBuilder& b) {
  if (b.spec().count == 0) return;
  const Rank root = b.spec().root;
  const Ref copy = b.Scratch(b.spec().dtype, b.size() > 1 ? b.spec().count : 0);
  if (b.rank() != root) {
    b.Wait(root);
    b.Copy(b.out(), copy.At(root));
    return;
  }
  if (b.size() > 1) {
    b.Copy(copy, b.in());
    b.Signal();
  }
  b.Copy(b.out(), b.in());
}

absl::Status SupportsEager(const CollectiveSpec& spec, int /*size*/, const PlanOptions& options) {
  return SupportsBlocksInScratch(spec, 1, kLaneBytes, options);
}

}  // namespace
}  // namespace tutti::schedules

TUTTI_SCHEDULE(broadcast, eager) = {
    .collective = tutti::Collective::kBroadcast,
    .name = "eager",
    .summary = "the root copies its buffer to mapped scratch and goes on; every other rank reads the copy",
    .cost = "1 signal, of the root, S bytes",
    .supports = tutti::schedules::SupportsEager,
    .build = tutti::schedules::Build,
    .touches_only_scratch_of_peers = true,
};
