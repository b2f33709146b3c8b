// All ranks average with all, so that their weights are equal after one exchange.
#include "tutti/peer_selection.h"

namespace tutti {
namespace {

int Rounds(int /*size*/) { return 1; }

std::vector<PeerWeight> Mix(int size, int /*round*/, Rank /*rank*/) {
  std::vector<PeerWeight> mix(size);
  for (Rank peer = 0; peer < size; ++peer) mix[peer] = {peer, 1.0 / size};
  return mix;
}

}  // namespace
}  // namespace tutti

TUTTI_PEER_SELECTION(all) = {
    .name = "all",
    .summary = "every rank averages with all: one all_reduce",
    .rounds = tutti::Rounds,
    .mix = tutti::Mix,
};
