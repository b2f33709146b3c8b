// Reduce, linear: every rank sends its buffer to the root, which combines all buffers in rank order. The schedule waits
// only once for the way from node to node, and serves buffers of few bytes where that way is long; the root's link
// carries all buffers of a long one. A long buffer travels slice after slice, through the same scratch.
//
// Steps: 1 by every rank but the root, n-1 at the root, all at once. Bytes sent: S, the whole buffer, by every rank but
// the root, also for 16-bit sums, averages and products: partials (partials.h) never travel.
#include "tutti/schedule.h"
#include "tutti/schedules/pairwise_exchange.h"

namespace tutti::schedules {
namespace {

void Build(PlanBuilder& b) {
  const Rank root = b.spec().root;
  if (b.size() == 1) return b.Copy(b.out(), b.in());
  if (b.rank() != root) {
    return ForEachSlice(b, b.in().count(),
                        [&](std::int64_t begin, std::int64_t count) { b.Send(root, b.in().Elements(begin, count)); });
  }
  const std::vector<Ref> inputs(static_cast<std::size_t>(b.size()), b.in());
  ReduceArrivals(b, inputs, b.out(), [&](const std::vector<Ref>&, absl::FunctionRef<Ref(Rank)> arriving) {
    for (Rank rank = 0; rank < b.size(); ++rank) {
      if (rank != root) b.Recv(rank, arriving(rank));
    }
  });
}

}  // namespace
}  // namespace tutti::schedules

TUTTI_SCHEDULE(reduce, linear) = {
    .collective = tutti::Collective::kReduce,
    .name = "linear",
    .summary = "every rank sends its buffer to the root at once",
    .cost = "1 step (root: n-1 at once), S bytes",
    .supports = tutti::SupportsAll,
    .build = tutti::schedules::Build,
    .competes = tutti::schedules::PairwiseCompetes,
};
