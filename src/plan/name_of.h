// Names of enumerators and back. A value that is no enumerator has a name, too: the text of an error must not fail
// itself.
#ifndef TUTTI_PLAN_NAME_OF_H_
#define TUTTI_PLAN_NAME_OF_H_

#include <array>
#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

namespace tutti {

// The name of `value`, of an enumeration 0 … N-1.
template <typename Enum, std::size_t N>
absl::string_view NameOf(const std::array<absl::string_view, N>& names, Enum value) {
  const auto index = static_cast<std::size_t>(value);
  return index < N ? names[index] : "?";
}

// The one of `all` whose name is `name`; InvalidArgument lists the names. `what` is the kind of value ("dtype").
template <typename Enum, std::size_t N>
absl::StatusOr<Enum> ParseName(const std::array<Enum, N>& all, absl::string_view what, absl::string_view name) {
  for (Enum value : all) {
    if (Name(value) == name) return value;
  }
  const std::string valid =
      absl::StrJoin(all, ", ", [](std::string* out, Enum value) { absl::StrAppend(out, Name(value)); });
  return absl::InvalidArgumentError(absl::StrCat("unknown ", what, " '", name, "'; valid: ", valid));
}

}  // namespace tutti

#endif  // TUTTI_PLAN_NAME_OF_H_
