// A ring: every rank mixes with the ranks before and after it, in shares of a third each (two ranks: half each).
#include "algorithms/peer_selections/circulant.h"

namespace tutti {
namespace {

int Rounds(int /*size*/) { return 1; }

std::vector<PeerWeight> Mix(int size, int /*round*/, Rank rank) {
  if (size == 1) return {{0, 1}};
  if (size == 2) return EqualParts({0, 1});
  return EqualParts({(rank + size - 1) % size, rank, (rank + 1) % size});
}

}  // namespace
}  // namespace tutti

TUTTI_PEER_SELECTION(ring) = {
    .name = "ring",
    .summary = "each rank, the rank before and the rank after, a third each",
    .rounds = tutti::Rounds,
    .mix = tutti::Mix,
};
