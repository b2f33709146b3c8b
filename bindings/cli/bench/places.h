// Where the ranks of a benchmark are.
#ifndef TUTTI_BINDINGS_CLI_BENCH_PLACES_H_
#define TUTTI_BINDINGS_CLI_BENCH_PLACES_H_

#include <cstdint>
#include <string>

#include "absl/types/span.h"

namespace tutti::cli {

struct BenchPlaces {
  int nodes = 0;           // 0: not known
  int ranks_per_node = 0;  // of the node that has most

  // Whether every node has as many of `ranks` ranks as the others.
  bool even(int ranks) const { return std::int64_t{nodes} * ranks_per_node == ranks; }
  // Whether ranks share the link that leads to other nodes.
  bool share_links() const { return nodes > 1 && ranks_per_node > 1; }

  bool operator==(const BenchPlaces&) const = default;
};

// `nodes` is the node of each of `ranks` ranks, or empty where all are on one (PlanOptions::nodes).
BenchPlaces PlacesOf(absl::Span<const int> nodes, int ranks);

// "4 ranks on 2 nodes of 2 ranks"; "4 ranks" where the nodes are not known.
std::string InWords(int ranks, const BenchPlaces& places);

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_BENCH_PLACES_H_
