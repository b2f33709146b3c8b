// The name that was probably meant by a mistyped one.
#ifndef TUTTI_BASE_NEAREST_H_
#define TUTTI_BASE_NEAREST_H_

#include <cstddef>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tutti {

// The one of `names` that takes the fewest edits to become `word`; "" when each takes more than `most_edits`.
absl::string_view Nearest(absl::string_view word, absl::Span<const absl::string_view> names, std::size_t most_edits);

}  // namespace tutti

#endif  // TUTTI_BASE_NEAREST_H_
