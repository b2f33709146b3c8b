#include "bindings/cli/nearest.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tutti::cli {
namespace {

std::size_t EditDistance(absl::string_view a, absl::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t substitution = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = std::exchange(row[j + 1], std::min({substitution, row[j] + 1, row[j + 1] + 1}));
    }
  }
  return row.back();
}

}  // namespace

std::string Nearest(absl::string_view word, absl::Span<const std::string> candidates) {
  std::string nearest;
  std::size_t best = word.size() / 2 + 1;
  for (const std::string& candidate : candidates) {
    const std::size_t distance = EditDistance(word, candidate);
    if (distance < best) {
      best = distance;
      nearest = candidate;
    }
  }
  return nearest;
}

std::string Suggestion(absl::string_view word, absl::Span<const std::string> candidates) {
  const std::string nearest = Nearest(word, candidates);
  if (!nearest.empty()) return absl::StrCat("; did you mean ", nearest, "?");
  return absl::StrCat("; there are ", absl::StrJoin(candidates, ", "));
}

}  // namespace tutti::cli
