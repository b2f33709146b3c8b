// Peer selections: with whom a rank mixes its weights, when it does not with all. One file under
// algorithms/peer_selections/ defines one.
#ifndef TUTTI_PEER_SELECTION_H_
#define TUTTI_PEER_SELECTION_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tutti/dtype.h"

namespace tutti {

// Part of the weights of `rank` in a mix.
struct PeerWeight {
  Rank rank = 0;
  double weight = 0;
  bool operator==(const PeerWeight&) const = default;
};

// A record of pure functions. All parts of one rank's mix sum to 1 (what all agree on stays), and so do the parts of
// one rank in all mixes (the average over the ranks stays): the mixing matrix of a round is doubly stochastic.
struct PeerSelection {
  absl::string_view name;
  absl::string_view summary;
  // Mixing matrices that take turns; at least 1.
  int (*rounds)(int size);
  // The parts of every rank with which `rank` mixes, itself included, by rank; none is 0.
  std::vector<PeerWeight> (*mix)(int size, int round, Rank rank);
  // Whether rounds are drawn by lot (from a seed that all ranks have) instead of in turn.
  bool random = false;
};

// The round of the `exchange`-th mix (from 0): in turn, or drawn by lot.
int RoundOfExchange(const PeerSelection& selection, std::int64_t exchange, std::int64_t seed, int size);

// Every peer selection of this build in alphabetical order (generated from algorithms/peer_selections/*.cc).
absl::Span<const PeerSelection* const> AllPeerSelections();
// NotFound lists the valid names.
absl::StatusOr<const PeerSelection*> FindPeerSelection(absl::string_view name);

// The mixing matrix of one round, by rows: weights[rank][from].
std::vector<std::vector<double>> MixingMatrix(const PeerSelection& selection, int size, int round);

// InvalidArgument unless `matrix` is square, has no negative entry, rows and columns that sum to 1 within 1e-6,
// connects all ranks, directly or through others, and its powers come to the average (a permutation, say, only moves
// weights in circles); names the row, column, ranks or period at fault.
absl::Status CheckMixingMatrix(absl::Span<const std::vector<double>> matrix);

}  // namespace tutti

// Defines the peer selection of algorithms/peer_selections/<name>.cc; the manifest finds it by the file's name.
#define TUTTI_PEER_SELECTION(name) extern constinit const ::tutti::PeerSelection tutti_peer_selection_##name

#endif  // TUTTI_PEER_SELECTION_H_
