// Pairs drawn by lot: one round, drawn at random, of a tournament in which every rank meets every other, so that all
// pairs are equally likely. All ranks draw the same round, from the option `seed`.
#include "algorithms/peer_selections/pairs.h"

namespace tutti {
namespace {

std::vector<PeerWeight> Mix(int size, int round, Rank rank) {
  return HalfAndHalf(rank, TournamentPartner(size, round, rank));
}

}  // namespace
}  // namespace tutti

TUTTI_PEER_SELECTION(random_pair) = {
    .name = "random_pair",
    .summary = "pairs drawn by lot, every pair equally likely",
    .rounds = tutti::TournamentRounds,
    .mix = tutti::Mix,
    .random = true,
};
