// A loop without faults: groups or synchronizers made, used once and destroyed, many times, while other groups work.
// Memory, descriptors and threads must stay what they were.
#ifndef TUTTI_TESTS_CHURN_LOOP_H_
#define TUTTI_TESTS_CHURN_LOOP_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tests/churn/report.h"
#include "tests/churn/round.h"

namespace tutti::churn {

enum class Looped : std::uint8_t { kGroups, kSynchronizers };

struct LoopResult {
  std::vector<Finding> found;
  std::vector<std::string> usage;  // of each rank: resources held early and at the end
};

// `round` says who runs, and over which path.
LoopResult RunLoop(Looped looped, int count, const Round& round, const std::string& directory);

}  // namespace tutti::churn

#endif  // TUTTI_TESTS_CHURN_LOOP_H_
