// `tutti launch`: the ranks of a job as processes of this machine.
#ifndef TUTTI_BINDINGS_CLI_LAUNCH_LAUNCH_H_
#define TUTTI_BINDINGS_CLI_LAUNCH_LAUNCH_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace tutti {

struct LaunchOptions {
  int ranks = 1;
  // The rank, in the job, of the first rank that starts here: more than 0 where other launchers start those before it.
  // TUTTI_RANK, reports and tags count from first_rank; TUTTI_LOCAL_RANK counts from 0. Where it is more than 0, the
  // command must replace TUTTI_SIZE and what tells the ranks where they meet, which are those of a job of this launcher
  // alone; the commands of CommandsOfHosts do.
  int first_rank = 0;
  // Program (found as a shell would find it) and its arguments.
  std::vector<std::string> command;
  // Put "[rank] " in front of every line of output; a line of more than 1 MiB is cut into several. Standard output and
  // error stay apart.
  bool tag_output = false;
  // Bind each rank to an equal share of the processors on which this process may run, in the order of their numbers. An
  // error where there are fewer processors than ranks.
  bool bind = false;
  // Say on standard error which OMP_NUM_THREADS the ranks have, where the environment has none.
  bool tells_threads = true;
  // How long ranks that are told to end (SIGTERM) may take before they are killed.
  absl::Duration grace = absl::Seconds(5);
  // How long, once the job has failed or a signal has ended it, a reader of tagged output may take nothing before what
  // is left is dropped.
  absl::Duration reader_patience = absl::Seconds(5);
};

// Starts the ranks, waits for them, and returns the status with which to exit: 0 when every rank exits with 0, else the
// exit code of the first that failed, 128 + the signal's number when a signal ended it. The first failure ends all
// ranks, and what they have started, and is reported on standard error with its rank. Serves the store of the job and
// gives each rank its identity (TUTTI_RANK …) and, through an inherited descriptor, the job secret. Of other
// descriptors the ranks inherit standard input (the first rank here), output and error only.
//
// Signals: SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 are passed on to the ranks and their process groups. One of the
// first three ends the job: ranks that still run after `grace` are killed, as is what ranks leave behind, and the
// status is 128 + the signal's number, unless a rank fails in another way than by the signals that it has got. Such a
// failure is reported, and the other ranks keep their `grace`. When this process is killed, also while it starts ranks,
// the ranks and all that they have started are killed.
//
// Output with tag_output: nothing is lost because a reader is slow. A rank that writes faster than it is read waits in
// its write, as without tags; the other ranks, signals and the news of a rank's death do not wait. Once the ranks have
// ended, what they wrote is delivered as long as somebody reads: after a failure, or a signal that ends the job, a
// reader that takes nothing for `reader_patience` is given up, with a report on standard error. When the reader is gone
// (EPIPE), a rank that writes gets SIGPIPE. After any other error of a write (a full disk) the output is dropped. A job
// that lost output does not return 0.
//
// Call Launch once, from the main thread, before other threads are started: Launch handles signals of the whole
// process. InvalidArgument names an option that is wrong, NotFound the program that cannot be started,
// ResourceExhausted says what the system refused.
absl::StatusOr<int> Launch(const LaunchOptions& options);

}  // namespace tutti

#endif  // TUTTI_BINDINGS_CLI_LAUNCH_LAUNCH_H_
