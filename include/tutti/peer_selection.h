// Peer selections: the peers with which a rank mixes its weights, where it does not mix with all ranks. One file under
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

// The share of `rank`'s weights in a mix of weights.
struct PeerWeight {
  Rank rank = 0;
  double weight = 0;
  bool operator==(const PeerWeight&) const = default;
};

// A peer selection, as a record of pure functions. The mixing matrix of a round is doubly stochastic: the shares in one
// rank's mix sum to 1 (weights that are equal on all ranks stay so), and the shares of one rank in all mixes sum to 1
// (the average over the ranks stays the same).
struct PeerSelection {
  absl::string_view name;
  absl::string_view summary;
  // The number of mixing matrices that take turns; at least 1.
  int (*rounds)(int size);
  // The shares of all ranks in the mix of `rank`, its own included, in rank order; ranks with share 0 are left out.
  std::vector<PeerWeight> (*mix)(int size, int round, Rank rank);
  // Whether rounds are drawn by lot, from a seed that all ranks have, instead of in turn.
  bool random = false;
};

// The round of the `exchange`-th mix (from 0), taken in turn or drawn by lot.
int RoundOfExchange(const PeerSelection& selection, std::int64_t exchange, std::int64_t seed, int size);

// Every peer selection of this process, those of extensions (extension.h) too, in alphabetical order. What is returned
// stays valid.
absl::Span<const PeerSelection* const> AllPeerSelections();
// NotFound lists the valid names.
absl::StatusOr<const PeerSelection*> FindPeerSelection(absl::string_view name);

// Checks that `matrix` is square, has no negative entry, has rows and columns that sum to 1 within 1e-6, connects all
// ranks, directly or through others, and has powers that converge to the average (those of a permutation do not: it
// only moves weights in circles). InvalidArgument names the row, column, ranks or period at fault.
absl::Status CheckMixingMatrix(absl::Span<const std::vector<double>> matrix);

}  // namespace tutti

// Defines the peer selection of the file <name>.cc: TUTTI_PEER_SELECTION(name) = {.name = "name", …}; in Tutti's tree
// the file lies in algorithms/peer_selections, elsewhere it is given to tutti_add_extensions (extension.h).
#define TUTTI_PEER_SELECTION(name)                                 \
  extern const ::tutti::PeerSelection tutti_peer_selection_##name; \
  constinit const ::tutti::PeerSelection tutti_peer_selection_##name

#endif  // TUTTI_PEER_SELECTION_H_
