// Broadcast, scatter and all-gather (van de Geijn; Thakur, Rabenseifner and Gropp 2005, §4.3).
//
// The buffer of S bytes is cut into one chunk per rank; ranks are counted from the root, v = 0 … n-1. The root scatters
// the chunks down a binomial tree: every rank gets the chunks of its whole subtree, v … SubtreeEnd(v)-1. Then chunks
// travel around the ring of v, except where the receiver has them already.
//
// Steps per rank: ⌈log2 n⌉ + n-1. Bytes sent: less than 2S by any rank: of the subtrees of the root's children no two
// have a chunk in common. The schedule serves large buffers.
#include "tutti/schedule.h"
#include "tutti/schedules/binomial_tree.h"
#include "tutti/schedules/chunks.h"
#include "tutti/schedules/ring_steps.h"

namespace tutti::schedules {
namespace {

void Build(PlanBuilder& b) {
  const int n = b.size();
  const BinomialTree tree(n, b.spec().root);
  const int v = tree.FromRoot(b.rank());
  const Ref source = v == 0 ? b.in() : b.out();

  // First the scatter, down the tree.
  const auto subtree = [&](const Ref& whole, int root) {
    return RunOfChunks(whole, n, root, tree.SubtreeEnd(root) - root);
  };
  if (v != 0) b.Recv(tree.RankAt(BinomialTree::Parent(v)), subtree(b.out(), v));
  for (int child : tree.Children(v)) b.Send(tree.RankAt(child), subtree(source, child));

  // Then the all-gather, around the ring.
  const auto has = [&](int position, int chunk) { return chunk >= position && chunk < tree.SubtreeEnd(position); };
  const int next = OnRing(v + 1, n);
  for (int s = 0; s <= n - 2; ++s) {
    const int leaving = OnRing(v - s, n);
    const int arriving = OnRing(v - 1 - s, n);
    if (!has(next, leaving)) b.Send(NextOnRing(b), RunOfChunks(source, n, leaving, 1));
    if (!has(v, arriving)) b.Recv(PreviousOnRing(b), RunOfChunks(b.out(), n, arriving, 1));
  }
  if (v == 0) b.Copy(b.out(), b.in());
}

}  // namespace
}  // namespace tutti::schedules

TUTTI_SCHEDULE(broadcast, scatter_all_gather) = {
    .collective = tutti::Collective::kBroadcast,
    .name = "scatter_all_gather",
    .summary = "chunks scattered down a binomial tree, then all-gathered around a ring",
    .cost = "⌈log2 n⌉+n-1 steps, less than 2·S bytes",
    .supports = tutti::SupportsAll,
    .build = tutti::schedules::Build,
};
