// What `tutti check` tries of a schedule, an algorithm or a codec. Each function returns what was found right, in a
// line; FailedPrecondition names the first case that is wrong, with numbers.
#ifndef TUTTI_BINDINGS_CLI_CHECK_CHECKS_H_
#define TUTTI_BINDINGS_CLI_CHECK_CHECKS_H_

#include <string>

#include "absl/status/statusor.h"
#include "tutti/algorithm.h"
#include "tutti/codec.h"
#include "tutti/schedule.h"

namespace tutti::cli {

// Verifies the plans of worlds of 1 to kRanksOfCheck ranks. Unimplemented for send and recv, which belong together.
inline constexpr int kRanksOfCheck = 9;
absl::StatusOr<std::string> CheckPlans(const Schedule& schedule);
absl::StatusOr<std::string> CheckPlans(const Strategy& strategy);

// Makes the calls of the schedule in worlds of 1 to kRanksOfCheck ranks, which are threads of this process, on one node
// and on nodes of two ranks, and compares every element of every output. Errors with other codes than
// FailedPrecondition are no fault of the schedule: of settings, or of what the machine lacks.
absl::StatusOr<std::string> CheckNumbers(const Schedule& schedule);

// Encodes and decodes messages of many lengths and values, with every set of options that the codec takes.
absl::StatusOr<std::string> CheckCodec(const Codec& codec);

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_CHECK_CHECKS_H_
