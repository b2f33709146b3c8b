#include "bindings/cli/bench/places.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"

namespace tutti::cli {

BenchPlaces PlacesOf(absl::Span<const int> nodes, int ranks) {
  if (nodes.empty()) return {.nodes = 1, .ranks_per_node = ranks};
  std::map<int, int> ranks_of;
  BenchPlaces places;
  for (const int node : nodes) places.ranks_per_node = std::max(places.ranks_per_node, ++ranks_of[node]);
  places.nodes = static_cast<int>(ranks_of.size());
  return places;
}

std::string InWords(int ranks, const BenchPlaces& places) {
  std::string some = absl::StrCat(ranks, ranks == 1 ? " rank" : " ranks");
  if (places.nodes == 0) return some;
  if (places.nodes == 1) return absl::StrCat(some, " on 1 node");
  return absl::StrCat(some, " on ", places.nodes, " nodes of ", places.even(ranks) ? "" : "up to ",
                      places.ranks_per_node, places.ranks_per_node == 1 ? " rank" : " ranks");
}

}  // namespace tutti::cli
