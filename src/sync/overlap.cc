#include "sync/overlap.h"

#include <algorithm>
#include <cstddef>
#include <functional>

#include "absl/strings/str_cat.h"

namespace tutti {

absl::Status CheckDisjoint(std::vector<StateMemory> weights) {
  std::erase_if(weights, [](const StateMemory& range) { return range.bytes == 0; });
  // Ranges that begin at one address stay in the order of the parameters, so that all ranks name them in one order.
  std::stable_sort(weights.begin(), weights.end(),
                   [](const StateMemory& a, const StateMemory& b) { return std::less<>()(a.data, b.data); });
  // If any two overlap, two that follow one another do.
  for (std::size_t i = 1; i < weights.size(); ++i) {
    const StateMemory& before = weights[i - 1];
    const auto* const end = static_cast<const std::byte*>(before.data) + before.bytes;
    if (!std::less<>()(weights[i].data, static_cast<const void*>(end))) continue;
    return absl::InvalidArgumentError(absl::StrCat("parameters ", before.name, " and ", weights[i].name,
                                                   " have weights in common, must have memory of their own: list "
                                                   "weights that are tied as one parameter"));
  }
  return absl::OkStatus();
}

}  // namespace tutti
