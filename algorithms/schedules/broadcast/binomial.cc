// Broadcast, binomial tree (Thakur, Rabenseifner and Gropp 2005, §4.3).
//
// Every rank receives the buffer of S bytes from its parent and passes it on to its children, that with the largest
// subtree first. Segments are passed on as they arrive, so a long buffer flows through all levels at once.
//
// Steps: ⌈log2 n⌉ on the longest path between n ranks. Bytes sent: S per child, ⌈log2 n⌉·S by the root. The tree
// serves small buffers.
#include "tutti/schedule.h"
#include "tutti/schedules/binomial_tree.h"

namespace tutti::schedules {
namespace {

void Build(PlanBuilder& b) {
  const BinomialTree tree(b.size(), b.spec().root);
  const int v = tree.FromRoot(b.rank());
  if (v != 0) b.Recv(tree.RankAt(BinomialTree::Parent(v)), b.out());
  for (int child : tree.Children(v)) b.Send(tree.RankAt(child), v == 0 ? b.in() : b.out());
  if (v == 0) b.Copy(b.out(), b.in());
}

}  // namespace
}  // namespace tutti::schedules

TUTTI_SCHEDULE(broadcast, binomial) = {
    .collective = tutti::Collective::kBroadcast,
    .name = "binomial",
    .summary = "down a binomial tree",
    .cost = "⌈log2 n⌉ steps, up to ⌈log2 n⌉·S bytes",
    .supports = tutti::SupportsAll,
    .build = tutti::schedules::Build,
};
