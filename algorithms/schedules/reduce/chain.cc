// Reduce, chain: the rank farthest from the root sends its input to the rank before it, which combines each piece with
// its own as soon as the piece has come, and passes the partial on, towards the root (pipelining; van de Geijn 1994,
// "On global combine operations").
//
// Operands are combined in rank order, counted from the root. Steps: n-1 on the longest path between n ranks. Bytes
// sent: S, the whole buffer, by every rank but the root, the minimum for messages (16-bit sums, averages and products:
// 2S, since partials are fp32). The chain serves large buffers: with k pieces it takes (k+n-2)/k of the time that S
// bytes take.
#include "tutti/schedule.h"
#include "tutti/schedules/chain_pieces.h"
#include "tutti/schedules/partials.h"
#include "tutti/schedules/ring_steps.h"

namespace tutti::schedules {
namespace {

void Build(PlanBuilder& b) {
  const int n = b.size();
  if (n == 1) return b.Copy(b.out(), b.in());

  const int v = OnRing(b.rank() - b.spec().root, n);  // the distance from the root
  const std::int64_t piece = ChainPiece(b, PartialType(b));
  // A few pieces at once: one is on its way while others are combined or sent.
  const std::int64_t slice = std::max(piece, Slots::SliceElements(b, b.spec().count) / piece * piece);
  Slots arrivals(b, slice);
  Slots widened(b, slice);
  for (std::int64_t begin = 0; begin < b.spec().count; begin += slice) {
    const std::int64_t count = std::min(slice, b.spec().count - begin);
    const Ref mine = widened.AsPartial(b.in().Elements(begin, count));
    const Ref theirs = v < n - 1 ? arrivals.Next(count) : Ref();
    for (std::int64_t first = 0; first < count; first += piece) {
      const std::int64_t elements = std::min(piece, count - first);
      Ref partial = mine.Elements(first, elements);
      if (v < n - 1) {
        const Ref arrival = theirs.Elements(first, elements);
        b.Recv(NextOnRing(b), arrival);
        const Ref own = partial;
        partial = v == 0 ? b.out().Elements(begin + first, elements) : arrival;
        b.Reduce(partial, {own, arrival}, v == 0 ? b.spec().op : PartialOp(b.spec()));
      }
      if (v > 0) b.Send(PreviousOnRing(b), partial);
    }
  }
}

}  // namespace
}  // namespace tutti::schedules

TUTTI_SCHEDULE(reduce, chain) = {
    .collective = tutti::Collective::kReduce,
    .name = "chain",
    .summary = "piece by piece from each rank to the rank before it, which adds its own",
    .cost = "n-1 steps, S bytes",
    .supports = tutti::SupportsAll,
    .build = tutti::schedules::Build,
    .competes = tutti::schedules::ChainCompetes,
};
