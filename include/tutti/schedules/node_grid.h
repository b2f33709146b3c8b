// The ranks of several nodes as a grid: a row for each node, and in it the ranks of the node at places 0, 1, 2 … Ranks
// of one row reach each other's scratch; ranks of one column, which have the same place on their nodes, exchange
// messages, so that all ranks of a node share the work of the wire.
#ifndef TUTTI_SCHEDULES_NODE_GRID_H_
#define TUTTI_SCHEDULES_NODE_GRID_H_

#include <algorithm>
#include <cstddef>
#include <map>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tutti/plan_builder.h"

namespace tutti::schedules {

class NodeGrid {
 public:
  // Nodes are in order of their first ranks, and ranks of a node in order.
  explicit NodeGrid(const PlanOptions& options) {
    std::map<int, std::size_t> row_of;
    for (std::size_t rank = 0; rank < options.nodes.size(); ++rank) {
      const auto [row, is_new] = row_of.emplace(options.nodes[rank], rows_.size());
      if (is_new) rows_.emplace_back();
      rows_[row->second].push_back(static_cast<Rank>(rank));
    }
  }

  int nodes() const { return static_cast<int>(rows_.size()); }
  // The number of ranks of each node.
  int places() const { return static_cast<int>(rows_[0].size()); }
  const std::vector<std::vector<Rank>>& rows() const { return rows_; }
  Rank RankAt(int node, int place) const {
    return rows_[static_cast<std::size_t>(node)][static_cast<std::size_t>(place)];
  }
  int NodeOf(Rank rank) const {
    const auto has = [&](const std::vector<Rank>& row) { return std::find(row.begin(), row.end(), rank) != row.end(); };
    return static_cast<int>(std::find_if(rows_.begin(), rows_.end(), has) - rows_.begin());
  }

 private:
  std::vector<std::vector<Rank>> rows_;
};

// Another rank of this rank's node.
struct Neighbour {
  int place = 0;
  Rank rank = 0;
};

// The place in the grid of the rank whose plan is written.
struct GridPlace {
  explicit GridPlace(const PlanBuilder& b) : grid(b.options()) {
    node = grid.NodeOf(b.rank());
    row = grid.rows()[static_cast<std::size_t>(node)];
    place = static_cast<int>(std::find(row.begin(), row.end(), b.rank()) - row.begin());
    for (const std::vector<Rank>& other : grid.rows()) column.push_back(other[static_cast<std::size_t>(place)]);
    // The nearest successor first, as in PlanBuilder::WaitAll.
    for (int i = 1; i < grid.places(); ++i) {
      const int other = (place + i) % grid.places();
      neighbours.push_back({other, row[static_cast<std::size_t>(other)]});
    }
  }

  NodeGrid grid;
  int node = 0;
  int place = 0;
  std::vector<Rank> row;              // the ranks of this rank's node, by place
  std::vector<Rank> column;           // the ranks of this rank's place, by node
  std::vector<Neighbour> neighbours;  // the other ranks of the node
};

// `supports` of a schedule over a grid: several nodes with equally many ranks each, at least two, that map each other's
// memory.
inline absl::Status SupportsGrid(const CollectiveSpec& /*spec*/, int /*size*/, const PlanOptions& options) {
  if (options.one_node()) {
    return absl::UnimplementedError("the schedule is for several nodes, and all ranks are on one node");
  }
  if (!options.peers_mapped) {
    return absl::UnimplementedError("the schedule reads the memory of peers on the same node, which is not mapped");
  }
  const NodeGrid grid(options);
  std::size_t fewest = grid.rows()[0].size();
  std::size_t most = fewest;
  for (const std::vector<Rank>& row : grid.rows()) {
    fewest = std::min(fewest, row.size());
    most = std::max(most, row.size());
  }
  if (fewest == most && most > 1) return absl::OkStatus();
  return absl::UnimplementedError(
      absl::StrCat("the schedule needs nodes with equally many ranks each, at least 2, and nodes have ", fewest,
                   fewest == most ? "" : absl::StrCat(" to ", most), fewest == 1 && most == 1 ? " rank" : " ranks"));
}

}  // namespace tutti::schedules

#endif  // TUTTI_SCHEDULES_NODE_GRID_H_
