#include "base/nearest.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

namespace tutti {
namespace {

std::size_t EditDistance(absl::string_view a, absl::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t substitute = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = std::exchange(row[j + 1], std::min({substitute, row[j] + 1, row[j + 1] + 1}));
    }
  }
  return row.back();
}

}  // namespace

absl::string_view Nearest(absl::string_view word, absl::Span<const absl::string_view> names, std::size_t most_edits) {
  absl::string_view nearest;
  std::size_t fewest = most_edits + 1;
  for (const absl::string_view name : names) {
    const std::size_t edits = EditDistance(word, name);
    if (edits >= fewest) continue;
    fewest = edits;
    nearest = name;
  }
  return nearest;
}

}  // namespace tutti
