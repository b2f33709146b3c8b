// What a mistyped name was probably meant to be.
#ifndef TUTTI_BINDINGS_CLI_NEAREST_H_
#define TUTTI_BINDINGS_CLI_NEAREST_H_

#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tutti::cli {

// The candidate that takes the fewest edits to become `word`; "" when none is nearer than half of the word.
std::string Nearest(absl::string_view word, absl::Span<const std::string> candidates);

// "; did you mean X?" where Nearest finds one, else "; there are A, B, C".
std::string Suggestion(absl::string_view word, absl::Span<const std::string> candidates);

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_NEAREST_H_
