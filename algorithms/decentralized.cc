// decentralized: ranks exchange weights instead of gradients, while forward and backward compute with the weights as
// they were; a mix replaces the weights just before the optimizer applies the gradient. Every rank ends with the sum of
// its peers' weights times their shares in its mix; the option peer_selection_mode chooses the peers.
//
// After Bagua's Decentralized (Lian et al., 2017, https://arxiv.org/abs/1705.09056).
#include <algorithm>
#include <cstddef>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/types/span.h"
#include "tutti/algorithm.h"
#include "tutti/bucket_support.h"
#include "tutti/peer_selection.h"
#include "tutti/selector.h"

namespace tutti {
namespace {

using Matrix = std::vector<std::vector<double>>;

absl::StatusOr<Matrix> ParseRows(absl::string_view text) {
  Matrix matrix;
  for (const absl::string_view row : absl::StrSplit(text, '/')) {
    matrix.emplace_back();
    for (const absl::string_view entry : absl::StrSplit(row, ' ', absl::SkipEmpty())) {
      if (!absl::SimpleAtod(entry, &matrix.back().emplace_back())) {
        return absl::InvalidArgumentError(absl::StrCat("matrix: '", entry, "' is not a number"));
      }
    }
  }
  return matrix;
}

// Makes the sum of `row` 1. Shares that are written alike become equal shares to the last bit, which a quotient by
// their sum seldom is: 0.1 / (0.1 + … + 0.1) is not 1.0 / 10.
void Normalize(std::vector<double>& row) {
  const double largest = *std::max_element(row.begin(), row.end());
  const auto shares = std::count_if(row.begin(), row.end(), [](double entry) { return entry != 0; });
  const bool are_equal = std::count(row.begin(), row.end(), largest) == shares;
  const double sum = std::accumulate(row.begin(), row.end(), 0.0);
  for (double& entry : row) {
    if (entry != 0) entry = are_equal ? 1.0 / static_cast<double>(shares) : entry / sum;
  }
}

// The mixing matrix that `text` says. The sum of each row is made 1, because numbers are written with few digits: rows
// of 0.3333333 would shrink the weights by a ten-millionth in every exchange.
absl::StatusOr<Matrix> ParseMatrix(absl::string_view text) {
  absl::StatusOr<Matrix> matrix = ParseRows(text);
  if (!matrix.ok()) return matrix;
  if (absl::Status written = CheckMixingMatrix(*matrix); !written.ok()) return written;
  for (std::vector<double>& row : *matrix) Normalize(row);
  if (absl::Status divided = CheckMixingMatrix(*matrix); !divided.ok()) {
    return absl::Status(divided.code(), absl::StrCat(divided.message(), ", after each row is divided by its sum"));
  }
  return matrix;
}

absl::Status CheckMatrix(const AlgorithmOption& /*option*/, absl::string_view value) {
  return value.empty() ? absl::OkStatus() : ParseMatrix(value).status();
}

constexpr AlgorithmOption kOptions[] = {
    {"hierarchical", "true", "true | false", "average inside each node first; no effect on one node", CheckListed},
    {"peer_selection_mode", "all", "a peer selection", "with whom a rank mixes its weights", CheckPeerSelection},
    {"communication_interval", "1", "1, 2, …", "steps from one exchange to the next", CheckPositive},
    {"seed", "0", "0, 1, …", "seed of the random numbers of peer selections that draw lots", CheckNotNegative},
    {"matrix", "", "rows of numbers, as 0.5 0.5/0.5 0.5",
     "a mixing matrix, in place of a peer selection: entry c of row r is the share of rank c in the mix of rank r",
     CheckMatrix},
};

const PeerSelection& SelectionOf(const Strategy& strategy) {
  return **FindPeerSelection(strategy.option("peer_selection_mode"));
}

int Rounds(const Strategy& strategy, int size) {
  return strategy.option("matrix").empty() ? SelectionOf(strategy).rounds(size) : 1;
}

RoundOfStep RoundsOfSteps(const Strategy& strategy, int size) {
  const bool has_matrix = !strategy.option("matrix").empty();
  const PeerSelection& selection = SelectionOf(strategy);
  const std::int64_t interval = strategy.integer("communication_interval");
  const std::int64_t seed = strategy.integer("seed");
  return [=, &selection](std::int64_t step) {
    if (step % interval != 0) return kNoExchange;
    return has_matrix ? 0 : RoundOfExchange(selection, step / interval, seed, size);
  };
}

// The shares of all ranks in the mix of one rank, in rank order; ranks with share 0 are left out.
using Mix = std::vector<PeerWeight>;

// The mixes of one round, made one at a time: together they would have n² shares for n ranks.
class Mixes {
 public:
  Mixes(const Strategy& strategy, int size, int round) : selection_(SelectionOf(strategy)), size_(size), round_(round) {
    const absl::string_view own = strategy.option("matrix");
    if (!own.empty()) matrix_ = *ParseMatrix(own);
  }

  Mix Of(Rank rank) const {
    if (matrix_.empty()) return selection_.mix(size_, round_, rank);
    Mix mix;
    for (Rank from = 0; from < size_; ++from) {
      if (const double weight = matrix_[rank][from]; weight != 0) mix.push_back({from, weight});
    }
    return mix;
  }

  bool AverageAll() const {
    const double part = 1.0 / static_cast<double>(size_);
    for (Rank rank = 0; rank < size_; ++rank) {
      const Mix mix = Of(rank);
      const bool averages = mix.size() == static_cast<std::size_t>(size_) &&
                            std::all_of(mix.begin(), mix.end(), [&](const PeerWeight& p) { return p.weight == part; });
      if (!averages) return false;
    }
    return true;
  }

 private:
  const PeerSelection& selection_;
  const int size_;
  const int round_;
  Matrix matrix_;  // empty: the peer selection's
};

bool HaveEquallyManyRanks(absl::Span<const int> nodes) {
  std::map<int, int> ranks;
  for (const int node : nodes) ++ranks[node];
  return std::all_of(ranks.begin(), ranks.end(),
                     [&](const auto& node) { return node.second == ranks.begin()->second; });
}

// Whether the option matrix is one for a world of `size` ranks or, with hierarchical=true, nodes.
absl::Status CheckMatrixFits(const Strategy& strategy, int size, absl::Span<const int> nodes) {
  if (strategy.option("peer_selection_mode") != "all") {
    return absl::InvalidArgumentError(absl::StrCat("option matrix takes the place of a peer selection; leave out ",
                                                   "peer_selection_mode=", strategy.option("peer_selection_mode")));
  }
  // A matrix of equal shares makes an average of all ranks, in which larger nodes would count more than it says.
  if (strategy.flag("hierarchical") && !HaveEquallyManyRanks(nodes)) {
    return absl::UnimplementedError(
        "option matrix mixes the averages of nodes, which then must have equally many ranks; use "
        "hierarchical=false");
  }
  const auto needed = static_cast<std::size_t>(size);
  const std::size_t rows = ParseMatrix(strategy.option("matrix"))->size();
  if (rows == needed) return absl::OkStatus();
  if (nodes.empty() || nodes.size() == needed) {
    return absl::InvalidArgumentError(
        absl::StrCat("option matrix has ", rows, " rows; a world of ", size, " needs ", size));
  }
  return absl::InvalidArgumentError(absl::StrCat("option matrix has ", rows, " rows, but hierarchical=true mixes the ",
                                                 "averages of ", size, " nodes: give ", size, " rows, or ",
                                                 nodes.size(), ", one per rank, with hierarchical=false"));
}

absl::Status Supports(const Strategy& strategy, const CollectiveSpec& bucket, int size, const PlanOptions& plan) {
  if (absl::Status valid = CheckAveragedWeights(bucket.dtype); !valid.ok()) return valid;
  return strategy.option("matrix").empty() ? absl::OkStatus() : CheckMatrixFits(strategy, size, plan.nodes);
}

std::vector<double> Mixing(const Strategy& strategy, int round, Rank rank, int size) {
  const Mixes mixes(strategy, size, round);
  if (mixes.AverageAll()) return {};
  std::vector<double> row(static_cast<std::size_t>(size), 0);
  for (const PeerWeight& part : mixes.Of(rank)) row[static_cast<std::size_t>(part.rank)] = part.weight;
  return row;
}

// out ← the mix of `parts`, which lie in the order of `mix`.
void CombineParts(PlanBuilder& b, absl::Span<const Ref> parts, const Mix& mix) {
  std::vector<Coefficient> coefficients;
  for (const PeerWeight& part : mix) coefficients.push_back({.factor = part.weight});
  const double equal = 1.0 / static_cast<double>(parts.size());
  const bool mean =
      std::all_of(coefficients.begin(), coefficients.end(), [&](const Coefficient& c) { return c.factor == equal; });
  if (parts.size() == 1) {
    b.Copy(b.out(), parts[0]);
  } else if (mean) {
    b.Mean(b.out(), parts);
  } else {
    b.Combine(b.out(), parts, coefficients);
  }
}

// The ranks that have a share of `rank` in their mixes, those that follow `rank` first, without `rank` itself.
std::vector<Rank> ReadersOf(const Mixes& mixes, Rank rank, int size) {
  std::vector<Rank> readers;
  for (int distance = 1; distance < size; ++distance) {
    const Rank after = (rank + distance) % size;
    const Mix mix = mixes.Of(after);
    if (std::any_of(mix.begin(), mix.end(), [&](const PeerWeight& part) { return part.rank == rank; })) {
      readers.push_back(after);
    }
  }
  return readers;
}

// The ranks that have a share in `mix`, which is that of `rank`: those that precede `rank` first, without `rank`
// itself.
std::vector<Rank> SourcesOf(const Mix& mix, Rank rank) {
  std::vector<Rank> before;
  std::vector<Rank> after;
  for (const PeerWeight& part : mix) {
    if (part.rank != rank) (part.rank < rank ? before : after).push_back(part.rank);
  }
  std::vector<Rank> sources(before.rbegin(), before.rend());
  sources.insert(sources.end(), after.rbegin(), after.rend());
  return sources;
}

void Build(const Strategy& strategy, int round, PlanBuilder& b) {
  const Mixes mixes(strategy, b.size(), round);
  if (mixes.AverageAll()) {
    BuildSelected(b);
    return;
  }
  const Mix mix = mixes.Of(b.rank());
  const std::vector<Rank> readers = ReadersOf(mixes, b.rank(), b.size());
  const std::vector<Rank> sources = SourcesOf(mix, b.rank());
  std::vector<Ref> weights(b.size(), b.in());
  if (b.options().all_mapped()) {
    b.Signal();
    b.WaitFor(sources);
    for (const Rank rank : sources) weights[rank] = b.in().At(rank);
  } else {
    for (const Rank rank : readers) b.Send(rank, b.in());
    for (const Rank rank : sources) b.Recv(rank, weights[rank] = b.Scratch(b.in().dtype, b.in().count()));
  }
  std::vector<Ref> parts;
  for (const PeerWeight& part : mix) parts.push_back(weights[part.rank]);
  CombineParts(b, parts, mix);
  if (b.options().all_mapped()) {
    // Peers may still read this rank's snapshot, which must not change before they are done.
    b.Signal();
    b.WaitFor(readers);
  }
}

}  // namespace
}  // namespace tutti

TUTTI_ALGORITHM(decentralized) = {
    .name = "decentralized",
    .summary = "Mix the weights with those of peers while forward and backward run",
    .cost = "peers · N bytes (one for pairs), 2(n-1)/n · N for all",
    .exchanges = tutti::Exchanges::kWeights,
    .phase = tutti::Phase::kForward,
    .options = tutti::kOptions,
    .rounds = tutti::Rounds,
    .round_of = tutti::RoundsOfSteps,
    .supports = tutti::Supports,
    .mixing = tutti::Mixing,
    .build = tutti::Build,
};
