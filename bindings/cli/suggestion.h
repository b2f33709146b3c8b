// The end of an error about a mistyped name: the name that was probably meant, or all names that there are.
#ifndef TUTTI_BINDINGS_CLI_SUGGESTION_H_
#define TUTTI_BINDINGS_CLI_SUGGESTION_H_

#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tutti::cli {

// "; did you mean X?" where a name X takes at most half as many edits as `word` has letters, else "; valid: A, B, C".
std::string Suggestion(absl::string_view word, absl::Span<const std::string> names);

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_SUGGESTION_H_
