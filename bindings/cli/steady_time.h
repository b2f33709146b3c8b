// The clock by which `tutti launch` waits.
#ifndef TUTTI_BINDINGS_CLI_STEADY_TIME_H_
#define TUTTI_BINDINGS_CLI_STEADY_TIME_H_

#include <chrono>

#include "absl/time/time.h"

namespace tutti {

// The time since some moment in the past, by a clock that, unlike that of absl::Now(), nobody can set.
inline absl::Duration SteadyTime() { return absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch()); }

}  // namespace tutti

#endif  // TUTTI_BINDINGS_CLI_STEADY_TIME_H_
