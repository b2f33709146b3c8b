// Broadcast, direct: every rank copies from the mapped memory of the root.
//
// One-shot (buffers of S ≤ kOneShotBytes bytes): the root copies its input to scratch, all ranks meet, and every rank
// copies from there. Above: the root copies its input to its output (nothing in place), all meet, every other rank
// copies the root's output, all meet again.
//
// The root's output, and not its input, because the other ranks do not know whether the root is in place.
// Steps per rank: n+1 for n ranks (one-shot) or 2n. Bytes read from the root: S by every other rank, at the same time.
#include "algorithms/schedules/mapped_peers.h"
#include "tutti/schedule.h"

namespace tutti::schedules {
namespace {

void Build(PlanBuilder& b) {
  if (b.spec().count == 0) return;
  const Rank root = b.spec().root;
  const bool is_root = b.rank() == root;
  if (b.size() == 1) return b.Copy(b.out(), b.in());

  if (b.out().bytes <= kOneShotBytes) {
    const Ref input = b.Scratch(b.out().dtype, b.out().count());
    if (is_root) b.Copy(input, b.in());
    MeetAll(b);
    b.Copy(b.out(), is_root ? b.in() : input.At(root));
  } else {
    if (is_root) b.Copy(b.out(), b.in());
    MeetAll(b);
    if (!is_root) b.Copy(b.out(), b.out().At(root));
    MeetAll(b);
  }
}

}  // namespace
}  // namespace tutti::schedules

TUTTI_SCHEDULE(broadcast, direct) = {
    .collective = tutti::Collective::kBroadcast,
    .name = "direct",
    .summary = "every rank copies the mapped output of the root",
    .cost = "1 or 2 rounds of signals, S bytes",
    .supports = tutti::SupportsMappedPeers,
    .build = tutti::schedules::Build,
};
