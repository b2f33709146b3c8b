// Starts the ranks of a round, does to the victim what the round says, and judges what comes of it.
#ifndef TUTTI_TESTS_CHURN_SUPERVISOR_H_
#define TUTTI_TESTS_CHURN_SUPERVISOR_H_

#include <string>
#include <vector>

#include "tests/churn/report.h"
#include "tests/churn/round.h"

namespace tutti::churn {

// What was found in the round; nothing when all is well. Adds its times to `report`. `directory` is for the rendezvous
// files of all rounds.
std::vector<Finding> RunRound(const Round& round, const std::string& directory, Report& report);

}  // namespace tutti::churn

#endif  // TUTTI_TESTS_CHURN_SUPERVISOR_H_
