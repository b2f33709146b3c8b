// The exponential graph, one peer at a time: every rank mixes with the rank 1, 2, 4, … places after it, in turn. In a
// world of 2^k ranks all weights are equal after k exchanges. (Ying et al., 2021)
#include <algorithm>

#include "algorithms/peer_selections/circulant.h"

namespace tutti {
namespace {

int Rounds(int size) { return std::max(PowersOfTwoBelow(size), 1); }

std::vector<PeerWeight> Mix(int size, int round, Rank rank) {
  if (size == 1) return {{0, 1}};
  return EqualParts({rank, (rank + (1 << round)) % size});
}

}  // namespace
}  // namespace tutti

TUTTI_PEER_SELECTION(one_peer_exponential) = {
    .name = "one_peer_exponential",
    .summary = "each rank and the rank 1, 2, 4, … places after that rank (another distance each round), half and half",
    .rounds = tutti::Rounds,
    .mix = tutti::Mix,
};
