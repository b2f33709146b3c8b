// The clock by which `tutti launch` waits.
#ifndef TUTTI_BINDINGS_CLI_STEADY_TIME_H_
#define TUTTI_BINDINGS_CLI_STEADY_TIME_H_

#include <chrono>

#include "absl/time/time.h"

namespace tutti {

// Since some moment in the past. Nobody can set it, unlike absl::Now(): what ranks are granted is as long as it says.
inline absl::Duration SteadyTime() { return absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch()); }

}  // namespace tutti

#endif  // TUTTI_BINDINGS_CLI_STEADY_TIME_H_
