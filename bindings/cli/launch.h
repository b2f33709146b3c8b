// `tutti launch`: the ranks of a job as processes of this machine.
#ifndef TUTTI_BINDINGS_CLI_LAUNCH_H_
#define TUTTI_BINDINGS_CLI_LAUNCH_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace tutti {

struct LaunchOptions {
  int ranks = 1;
  // Program (found as a shell would find it) and its arguments.
  std::vector<std::string> command;
  // Put "[rank] " in front of every line of output. Standard output and error stay apart.
  bool tag_output = false;
  // How long ranks that are told to end (SIGTERM) may take before they are killed.
  absl::Duration grace = absl::Seconds(5);
};

// Starts the ranks, waits for them, and returns the status with which to exit: 0 when every rank exits with 0, else the
// exit code of the first that failed, 128 + the signal's number when a signal ended it. The first failure ends all
// ranks and is reported on standard error with its rank. SIGINT and SIGTERM are passed on to the ranks, which die with
// this process even when it is killed. Serves the store of the job and gives each rank its identity (TUTTI_RANK …) and,
// through an inherited descriptor, the job secret.
//
// Call it once, from the main thread, before others are started: it handles signals of the whole process while it runs.
// InvalidArgument names an option that is wrong, NotFound the program that cannot be started.
absl::StatusOr<int> Launch(const LaunchOptions& options);

}  // namespace tutti

#endif  // TUTTI_BINDINGS_CLI_LAUNCH_H_
