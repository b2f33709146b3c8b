// Broadcast, linear: the root sends its buffer to every other rank. The schedule waits only once for the way from node
// to node, and serves buffers of few bytes where that way is long; the root's link carries all copies of a long one.
//
// Steps: 1 by every rank but the root, n-1 at the root, all at once. Bytes sent: (n-1)·S by the root, S being the
// buffer.
#include "tutti/schedule.h"
#include "tutti/schedules/pairwise_exchange.h"

namespace tutti::schedules {
namespace {

void Build(PlanBuilder& b) {
  if (b.rank() != b.spec().root) return b.Recv(b.spec().root, b.out());

  for (int distance = 1; distance < b.size(); ++distance) b.Send(OnRing(b.rank() + distance, b.size()), b.in());
  b.Copy(b.out(), b.in());
}

}  // namespace
}  // namespace tutti::schedules

TUTTI_SCHEDULE(broadcast, linear) = {
    .collective = tutti::Collective::kBroadcast,
    .name = "linear",
    .summary = "the root sends its buffer to every other rank at once",
    .cost = "1 step (root: n-1 at once), (n-1)·S bytes by the root",
    .supports = tutti::SupportsAll,
    .build = tutti::schedules::Build,
    .competes = tutti::schedules::PairwiseCompetes,
};
