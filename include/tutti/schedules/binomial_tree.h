// The binomial tree over n ranks: it has ⌈log2 n⌉ levels, and the root sends (or receives) once per level.
#ifndef TUTTI_SCHEDULES_BINOMIAL_TREE_H_
#define TUTTI_SCHEDULES_BINOMIAL_TREE_H_

#include <algorithm>
#include <vector>

#include "tutti/dtype.h"

namespace tutti::schedules {

// Ranks are counted from the root: v = (rank - root) mod n. The parent of v is v without its lowest set bit m; its
// children are v + m/2, v + m/4 … v + 1, as far as they are below n. The subtree of v is a run of ranks from v on.
class BinomialTree {
 public:
  BinomialTree(int n, Rank root) : n_(n), root_(root) {}

  int FromRoot(Rank rank) const { return (rank - root_ + n_) % n_; }
  Rank RankAt(int v) const { return (v + root_) % n_; }

  static int Parent(int v) { return v & (v - 1); }

  // The children of v, that with the largest subtree first.
  std::vector<int> Children(int v) const {
    std::vector<int> children;
    for (int m = 1; m < Reach(v) && v + m < n_; m *= 2) children.insert(children.begin(), v + m);
    return children;
  }

  // One past the last rank of v's subtree.
  int SubtreeEnd(int v) const { return std::min(v + Reach(v), n_); }

 private:
  // The lowest set bit of v; for the root, a power of two that is at least n.
  int Reach(int v) const {
    if (v != 0) return v & -v;
    int reach = 1;
    while (reach < n_) reach *= 2;
    return reach;
  }

  int n_;
  Rank root_;
};

}  // namespace tutti::schedules

#endif  // TUTTI_SCHEDULES_BINOMIAL_TREE_H_
