// The lower half of the ranks meets the upper half, shifted by one each round (Bagua's shift_one):
//
//   h = n/2, round c: r < h meets ((c + r) mod h) + h; r ≥ h meets (r - h - c) mod h
//
// An odd world has (n+1)/2 ranks in the lower half and pretends to have as many in the upper: in each round the rank
// that would meet the missing rank sits out, in rotation.
#include "algorithms/peer_selections/pairs.h"

namespace tutti {
namespace {

int Half(int size) { return (size + 1) / 2; }
int Rounds(int size) { return Half(size); }

std::vector<PeerWeight> Mix(int size, int round, Rank rank) {
  const int half = Half(size);
  const Rank peer = rank < half ? (round + rank) % half + half : (rank - half - round % half + half) % half;
  return HalfAndHalf(rank, peer < size ? peer : rank);
}

}  // namespace
}  // namespace tutti

TUTTI_PEER_SELECTION(shift_one) = {
    .name = "shift_one",
    .summary = "pairs of the lower and the upper half of the ranks, shifted by one each round",
    .rounds = tutti::Rounds,
    .mix = tutti::Mix,
};
