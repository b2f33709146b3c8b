// The static exponential graph: every rank mixes with the ranks 1, 2, 4, … places after it, in equal shares.
// (Ying et al., "Exponential Graph is Provably Efficient for Decentralized Deep Training", 2021)
#include "algorithms/peer_selections/circulant.h"

namespace tutti {
namespace {

int Rounds(int /*size*/) { return 1; }

std::vector<PeerWeight> Mix(int size, int /*round*/, Rank rank) {
  std::vector<Rank> ranks = {rank};
  for (int power = 0; power < PowersOfTwoBelow(size); ++power) ranks.push_back((rank + (1 << power)) % size);
  return EqualParts(std::move(ranks));
}

}  // namespace
}  // namespace tutti

TUTTI_PEER_SELECTION(exponential) = {
    .name = "exponential",
    .summary = "each rank and the ranks 1, 2, 4, … places after that rank, in equal parts",
    .rounds = tutti::Rounds,
    .mix = tutti::Mix,
};
