#include "bindings/torch/process_group/timeout.h"

#include <algorithm>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "absl/strings/numbers.h"
#include "tutti/config.h"

namespace tutti::dist {
namespace {

using std::chrono::milliseconds;

// The timeout of a group that is to have none: torch counts nanoseconds in 64 bits, and adds them to the time of day.
constexpr milliseconds kCentury = std::chrono::hours(100 * 365 * 24);

}  // namespace

absl::StatusOr<milliseconds> TimeoutOfGroup(milliseconds given) {
  if (given != kBackendDefaultTimeout) return given;
  const absl::StatusOr<std::vector<ConfigEntry>> config = EffectiveConfig();
  if (!config.ok()) return config.status();
  for (const ConfigEntry& entry : *config) {
    double seconds = 0;
    if (entry.name != "TUTTI_TIMEOUT" || entry.origin != "environment" || !absl::SimpleAtod(entry.value, &seconds)) {
      continue;
    }
    const std::chrono::duration<double> longest = kCentury;
    const auto timeout = std::min(std::chrono::duration<double>(seconds), longest);
    return std::max(std::chrono::ceil<milliseconds>(timeout), milliseconds(1));
  }
  return given;
}

}  // namespace tutti::dist
