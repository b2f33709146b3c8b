// Names of enumerators, also for values that are no enumerator: the text of an error must not fail itself.
#ifndef TUTTI_PLAN_NAME_OF_H_
#define TUTTI_PLAN_NAME_OF_H_

#include <array>
#include <cstddef>

#include "absl/strings/string_view.h"

namespace tutti {

// The name of `value`, of an enumeration 0 … N-1.
template <typename Enum, std::size_t N>
absl::string_view NameOf(const std::array<absl::string_view, N>& names, Enum value) {
  const auto index = static_cast<std::size_t>(value);
  return index < N ? names[index] : "?";
}

}  // namespace tutti

#endif  // TUTTI_PLAN_NAME_OF_H_
