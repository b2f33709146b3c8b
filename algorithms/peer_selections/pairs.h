// A mix of two ranks, half and half.
#ifndef TUTTI_ALGORITHMS_PEER_SELECTIONS_PAIRS_H_
#define TUTTI_ALGORITHMS_PEER_SELECTIONS_PAIRS_H_

#include <algorithm>
#include <vector>

#include "tutti/peer_selection.h"

namespace tutti {

// The mix of `rank` and `peer`. A rank that is its own peer sits the round out.
inline std::vector<PeerWeight> HalfAndHalf(Rank rank, Rank peer) {
  if (rank == peer) return {{rank, 1}};
  return {{std::min(rank, peer), 0.5}, {std::max(rank, peer), 0.5}};
}

// The number of rounds, and the partner of `rank` in one of them, of a tournament in which every rank meets every other
// once: size - 1 rounds, or size when size is odd and one rank per round has no partner. The circle method pairs ranks
// with rank + partner = round (mod the odd number of rounds); in an even world the last rank stands outside the circle
// and meets the one that would meet itself.
inline int TournamentRounds(int size) { return size % 2 == 0 ? std::max(size - 1, 1) : size; }

inline Rank TournamentPartner(int size, int round, Rank rank) {
  const int circle = TournamentRounds(size);
  const bool even = size % 2 == 0;
  if (even && rank == size - 1) {
    // The rank r of the circle that would meet itself: 2r = round (mod circle).
    return round % 2 == 0 ? round / 2 : (round + circle) / 2;
  }
  const Rank partner = ((round - rank) % circle + circle) % circle;
  return even && partner == rank ? size - 1 : partner;
}

}  // namespace tutti

#endif  // TUTTI_ALGORITHMS_PEER_SELECTIONS_PAIRS_H_
