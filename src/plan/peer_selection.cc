#include "tutti/peer_selection.h"

#include <cmath>
#include <cstddef>
#include <numeric>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "plan/registry.h"
#include "tutti/codecs/random.h"

namespace tutti {
namespace {

constexpr double kRounding = 1e-6;

// Every bit of the result depends on every bit of `x`, and all machines compute the same result.
std::uint64_t Mixed(std::uint64_t x) { return kernels::Mix(x + kernels::kGoldenRatio64); }

constexpr int kUnreached = -1;

// The distance of each rank from rank 0: the fewest exchanges after which rank 0 hears of that rank; kUnreached when
// rank 0 never does.
std::vector<int> DistancesFrom0(absl::Span<const std::vector<double>> matrix) {
  std::vector<int> distances(matrix.size(), kUnreached);
  std::vector<std::size_t> reached = {0};
  distances[0] = 0;
  for (std::size_t i = 0; i < reached.size(); ++i) {
    for (std::size_t other = 0; other < matrix.size(); ++other) {
      if (distances[other] != kUnreached || matrix[reached[i]][other] == 0) continue;
      distances[other] = distances[reached[i]] + 1;
      reached.push_back(other);
    }
  }
  return distances;
}

// The period of the graph: a rank hears of itself only after multiples of this number of exchanges. 1: from some
// exchange on, in every exchange. All ranks must have been reached.
int Period(absl::Span<const std::vector<double>> matrix, absl::Span<const int> distances) {
  int period = 0;
  for (std::size_t r = 0; r < matrix.size(); ++r) {
    for (std::size_t c = 0; c < matrix.size(); ++c) {
      if (matrix[r][c] != 0) period = std::gcd(period, distances[r] + 1 - distances[c]);
    }
  }
  return period;
}

}  // namespace

int RoundOfExchange(const PeerSelection& selection, std::int64_t exchange, std::int64_t seed, int size) {
  const int rounds = selection.rounds(size);
  if (!selection.random) return static_cast<int>(exchange % rounds);
  const std::uint64_t lot = Mixed(Mixed(static_cast<std::uint64_t>(seed)) ^ static_cast<std::uint64_t>(exchange));
  return static_cast<int>(lot % static_cast<std::uint64_t>(rounds));
}

absl::StatusOr<const PeerSelection*> FindPeerSelection(absl::string_view name) {
  for (const PeerSelection* selection : AllPeerSelections()) {
    if (selection->name == name) return selection;
  }
  const std::string valid =
      absl::StrJoin(AllPeerSelections(), ", ",
                    [](std::string* out, const PeerSelection* selection) { absl::StrAppend(out, selection->name); });
  return absl::NotFoundError(absl::StrCat("unknown peer selection '", name, "'; valid: ", valid, MissingExtension()));
}

absl::Status CheckMixingMatrix(absl::Span<const std::vector<double>> matrix) {
  std::vector<double> columns(matrix.size(), 0);
  for (std::size_t r = 0; r < matrix.size(); ++r) {
    const std::vector<double>& row = matrix[r];
    if (row.size() != matrix.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("matrix: row ", r, " has ", row.size(), " entries, must have ", matrix.size(), ", one per row"));
    }
    for (std::size_t c = 0; c < row.size(); ++c) {
      if (!(row[c] >= 0)) {
        return absl::InvalidArgumentError(
            absl::StrCat("matrix: entry ", row[c], " of row ", r, ", column ", c, " must be a number from 0 on"));
      }
      columns[c] += row[c];
    }
    const double sum = std::accumulate(row.begin(), row.end(), 0.0);
    if (std::abs(sum - 1) > kRounding) {
      return absl::InvalidArgumentError(
          absl::StrFormat("matrix: row %d sums to %.9g, must be 1 to within 1e-6", r, sum));
    }
  }
  for (std::size_t c = 0; c < columns.size(); ++c) {
    if (std::abs(columns[c] - 1) <= kRounding) continue;
    return absl::InvalidArgumentError(
        absl::StrFormat("matrix: column %d sums to %.9g, must be 1 to within 1e-6", c, columns[c]));
  }
  const std::vector<int> distances = DistancesFrom0(matrix);
  for (std::size_t r = 0; r < distances.size(); ++r) {
    if (distances[r] == kUnreached) {
      return absl::InvalidArgumentError(
          absl::StrCat("matrix: ranks 0 and ", r, " never hear of each other, not even through others"));
    }
  }
  if (const int period = Period(matrix, distances); period > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("matrix: a rank hears of itself only every ", period,
                     " exchanges, so weights go round and never agree; let a rank keep a part of its own"));
  }
  return absl::OkStatus();
}

}  // namespace tutti
