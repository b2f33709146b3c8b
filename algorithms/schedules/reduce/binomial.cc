// Reduce, binomial tree (Thakur, Rabenseifner and Gropp 2005, §4.6).
//
// Every rank combines its own input with the partials of its children, that of the smallest subtree first (so runs of
// ranks, counted from the root, are combined in their order), and sends the partial to its parent. Long buffers go up
// slice after slice, through the same scratch.
//
// Steps: ⌈log2 n⌉ on the longest path between n ranks. Bytes sent: S, the whole buffer, by every rank but the root
// (16-bit sums, averages and products: 2S, since partials are fp32).
#include <algorithm>

#include "tutti/schedule.h"
#include "tutti/schedules/binomial_tree.h"
#include "tutti/schedules/partials.h"

namespace tutti::schedules {
namespace {

void Build(PlanBuilder& b) {
  if (b.size() == 1) return b.Copy(b.out(), b.in());

  const BinomialTree tree(b.size(), b.spec().root);
  const int v = tree.FromRoot(b.rank());
  std::vector<int> children = tree.Children(v);
  std::reverse(children.begin(), children.end());

  const std::int64_t slice = Slots::SliceElements(b, b.spec().count);
  Slots arrivals(b, slice);
  Slots partials(b, slice);
  for (std::int64_t begin = 0; begin < b.spec().count; begin += slice) {
    const std::int64_t count = std::min(slice, b.spec().count - begin);
    Ref mine = partials.AsPartial(b.in().Elements(begin, count));
    bool may_change = b.in().dtype != PartialType(b);  // `mine` is no part of the input
    for (int child : children) {
      const Ref theirs = arrivals.Next(count);
      b.Recv(tree.RankAt(child), theirs);
      if (v == 0 && child == children.back()) {
        b.Reduce(b.out().Elements(begin, count), {mine, theirs}, b.spec().op);
      } else {
        // The input must not change: the first combination goes to scratch, and all later ones stay there.
        const Ref partial = may_change ? mine : partials.Next(count);
        b.Reduce(partial, {mine, theirs}, PartialOp(b.spec()));
        mine = partial;
        may_change = true;
      }
    }
    if (v != 0) b.Send(tree.RankAt(BinomialTree::Parent(v)), mine);
  }
}

}  // namespace
}  // namespace tutti::schedules

TUTTI_SCHEDULE(reduce, binomial) = {
    .collective = tutti::Collective::kReduce,
    .name = "binomial",
    .summary = "up a binomial tree",
    .cost = "⌈log2 n⌉ steps, S bytes",
    .supports = tutti::SupportsAll,
    .build = tutti::schedules::Build,
};
