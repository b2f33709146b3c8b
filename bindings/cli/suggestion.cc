#include "bindings/cli/suggestion.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/nearest.h"

namespace tutti::cli {

std::string Suggestion(absl::string_view word, absl::Span<const std::string> names) {
  const std::vector<absl::string_view> known(names.begin(), names.end());
  const absl::string_view nearest = Nearest(word, known, word.size() / 2);
  if (!nearest.empty()) return absl::StrCat("; did you mean ", nearest, "?");
  return absl::StrCat("; valid: ", absl::StrJoin(names, ", "));
}

}  // namespace tutti::cli
