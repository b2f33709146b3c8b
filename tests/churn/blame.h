// Which rank an error blames, and which rank it should blame.
#ifndef TUTTI_TESTS_CHURN_BLAME_H_
#define TUTTI_TESTS_CHURN_BLAME_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "tests/churn/report.h"
#include "tests/churn/round.h"

namespace tutti::churn {

// The words in the error of a group's call that precede the list of the group's ranks, which ends with a parenthesis.
inline constexpr absl::string_view kOfGroup = " (in a group of ranks ";

// "rank 2 died: …", "rank 0 waited 2s for rank 2 in …": {2}; "missing ranks: 2, 3": {2, 3}; {} when no rank is blamed.
// The part of an error that begins with "; known, too: " blames nobody.
std::vector<Rank> BlamedRanks(const std::string& error);

// What is wrong with the error of a survivor of the round's fault.
std::optional<Finding> JudgeError(const Round& round, absl::StatusCode code, const std::string& error);

}  // namespace tutti::churn

#endif  // TUTTI_TESTS_CHURN_BLAME_H_
