// Broadcast, direct: every rank copies from the mapped memory of the root.
//
// One-shot (buffers of S ≤ OneShotBytes bytes): the root copies its input to scratch, all ranks meet, and every other
// rank copies from that scratch. Larger buffers: all ranks meet, every rank copies the root's input to its own output,
// all ranks meet again.
//
// Steps per rank, with n ranks: one-shot n+1 (root: n+2), otherwise 2n+1. Bytes read from the root: S by every other
// rank, at the same time.
#include "tutti/schedule.h"
#include "tutti/schedules/mapped_peers.h"

namespace tutti::schedules {
namespace {

void Build(PlanBuilder& b) {
  if (b.spec().count == 0) return;
  if (b.size() == 1) return b.Copy(b.out(), b.in());

  const bool one_shot = b.out().bytes <= OneShotBytes(b);
  Ref input = InputOfRoot(b);
  if (one_shot) {
    const Ref copy = b.Scratch(input.dtype, input.count());
    if (b.rank() == b.spec().root) b.Copy(copy, input);
    input = b.rank() == b.spec().root ? input : copy.At(b.spec().root);
  }
  MeetAll(b);
  b.Copy(b.out(), input);
  if (!one_shot) MeetAll(b);
}

}  // namespace
}  // namespace tutti::schedules

TUTTI_SCHEDULE(broadcast, direct) = {
    .collective = tutti::Collective::kBroadcast,
    .name = "direct",
    .summary = "every rank copies the mapped input of the root",
    .cost = "1 or 2 rounds of signals, S bytes",
    .supports = tutti::SupportsMappedPeers,
    .build = tutti::schedules::Build,
    .only_copies_from_peers = true,
};
