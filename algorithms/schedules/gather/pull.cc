// Gather, pull: for buffers that no peer can map, which the root reads from the processes of its peers.
//
// All ranks meet, the root copies every block to its output, and tells the others, which wait. With n ranks and blocks
// of C bytes: 2 rounds of signals, (n-1)·C bytes read by the root.
#include "tutti/schedule.h"
#include "tutti/schedules/mapped_peers.h"
#include "tutti/schedules/ring_steps.h"

namespace tutti::schedules {
namespace {

void Build(PlanBuilder& b) {
  const std::int64_t block = b.spec().count;
  if (block == 0) return;
  if (b.size() == 1) return b.Copy(b.out(), b.in());
  MeetAll(b);
  if (b.rank() != b.spec().root) return b.Wait(b.spec().root);
  // Only the root knows whether its call is in place: a rank with one buffer announces it as input and as output.
  Ref theirs = b.in();
  theirs.space = b.spec().in_place ? Space::kOut : Space::kIn;
  theirs.offset = 0;
  for (int distance = 1; distance < b.size(); ++distance) {
    const Rank peer = OnRing(b.rank() + distance, b.size());
    b.Copy(b.out().Elements(peer * block, block), theirs.At(peer));
  }
  b.Signal();
  b.Copy(b.out().Elements(b.rank() * block, block), b.in());
}

}  // namespace
}  // namespace tutti::schedules

TUTTI_SCHEDULE(gather, pull) = {
    .collective = tutti::Collective::kGather,
    .name = "pull",
    .summary = "the root reads the blocks of all others from where these lie",
    .cost = "2 rounds of signals, (n-1)·C bytes (C: one block)",
    .supports = tutti::SupportsMappedPeers,
    .build = tutti::schedules::Build,
    .only_copies_from_peers = true,
    .competes_for_mapped_buffers = false,
};
