// Starts the ranks of a round, does to the victim what the round says, and judges how all ranks end.
#ifndef TUTTI_TESTS_CHURN_SUPERVISOR_H_
#define TUTTI_TESTS_CHURN_SUPERVISOR_H_

#include <string>
#include <vector>

#include "tests/churn/report.h"
#include "tests/churn/round.h"

namespace tutti::churn {

// Runs a round and returns its findings, none when all is well. Adds the round's times to `report`. `directory` is for
// the rendezvous files of all rounds.
std::vector<Finding> RunRound(const Round& round, const std::string& directory, Report& report);

}  // namespace tutti::churn

#endif  // TUTTI_TESTS_CHURN_SUPERVISOR_H_
