// All-gather, pull: for buffers that no peer can map, which every rank reads from the processes of its peers.
//
// All ranks meet, each copies the blocks of all others to its output, and all meet again. With n ranks and blocks of C
// bytes: 2 rounds of signals, (n-1)·C bytes read by every rank.
#include "tutti/schedule.h"
#include "tutti/schedules/mapped_peers.h"
#include "tutti/schedules/ring_steps.h"

namespace tutti::schedules {
namespace {

void Build(PlanBuilder& b) {
  const std::int64_t block = b.spec().count;
  if (block == 0) return;
  const auto place_of = [&](Rank rank) { return b.out().Elements(rank * block, block); };
  if (b.size() == 1) return b.Copy(place_of(b.rank()), b.in());
  MeetAll(b);
  for (int distance = 1; distance < b.size(); ++distance) {
    const Rank peer = OnRing(b.rank() + distance, b.size());
    // A peer in place has its input where it has its block of the output.
    b.Copy(place_of(peer), (b.spec().in_place ? place_of(peer) : b.in()).At(peer));
  }
  b.Copy(place_of(b.rank()), b.in());
  MeetAll(b);
}

}  // namespace
}  // namespace tutti::schedules

TUTTI_SCHEDULE(all_gather, pull) = {
    .collective = tutti::Collective::kAllGather,
    .name = "pull",
    .summary = "every rank reads the blocks of all others from where these lie",
    .cost = "2 rounds of signals, (n-1)·C bytes (C: one block)",
    .supports = tutti::SupportsMappedPeers,
    .build = tutti::schedules::Build,
    .only_copies_from_peers = true,
    .competes_for_mapped_buffers = false,
};
