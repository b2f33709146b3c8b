// How long the calls of a process group may wait.
#ifndef TUTTI_TORCH_PROCESS_GROUP_TIMEOUT_H_
#define TUTTI_TORCH_PROCESS_GROUP_TIMEOUT_H_

#include <chrono>

#include "absl/status/statusor.h"
#include "bindings/torch/process_group/interrupt.h"

namespace tutti::dist {

// The timeout of a group for which torch gives `given`: what TUTTI_TIMEOUT says, where that variable is set and `given`
// is torch's default, and otherwise `given`. torch gives its default for a program that names no timeout, so that a
// program which names 30 minutes looks the same. InvalidArgument names a variable of Tutti whose value is wrong.
absl::StatusOr<std::chrono::milliseconds> TimeoutOfGroup(std::chrono::milliseconds given);

// `timeout` after `from`; time_point::max() where the clock does not count as far.
inline WaitClock::time_point Later(WaitClock::time_point from, std::chrono::milliseconds timeout) {
  constexpr WaitClock::time_point kNever = WaitClock::time_point::max();
  return timeout < std::chrono::floor<std::chrono::milliseconds>(kNever - from) ? from + timeout : kNever;
}

}  // namespace tutti::dist

#endif  // TUTTI_TORCH_PROCESS_GROUP_TIMEOUT_H_
