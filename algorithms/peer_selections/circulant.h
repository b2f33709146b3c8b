// Parts of peer selections in which every rank takes equal shares of the ranks at fixed places relative to its own.
#ifndef TUTTI_ALGORITHMS_PEER_SELECTIONS_CIRCULANT_H_
#define TUTTI_ALGORITHMS_PEER_SELECTIONS_CIRCULANT_H_

#include <algorithm>
#include <vector>

#include "tutti/peer_selection.h"

namespace tutti {

// Equal shares of `ranks`; a rank that is named twice has two shares.
inline std::vector<PeerWeight> EqualParts(std::vector<Rank> ranks) {
  std::sort(ranks.begin(), ranks.end());
  const double part = 1.0 / static_cast<double>(ranks.size());
  std::vector<PeerWeight> mix;
  for (const Rank rank : ranks) {
    if (mix.empty() || mix.back().rank != rank) mix.push_back({rank, 0});
    mix.back().weight += part;
  }
  return mix;
}

// ⌈log2 size⌉, the number of powers of two below `size`.
inline int PowersOfTwoBelow(int size) {
  int powers = 0;
  while ((1 << powers) < size) ++powers;
  return powers;
}

}  // namespace tutti

#endif  // TUTTI_ALGORITHMS_PEER_SELECTIONS_CIRCULANT_H_
