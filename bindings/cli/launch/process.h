// One rank of `tutti launch` as a process.
#ifndef TUTTI_BINDINGS_CLI_LAUNCH_PROCESS_H_
#define TUTTI_BINDINGS_CLI_LAUNCH_PROCESS_H_

#include <sched.h>
#include <signal.h>
#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tutti/dtype.h"

namespace tutti {

// What the processes of all ranks have in common.
struct ProcessTemplate {
  std::vector<std::string> command;
  std::map<std::string, std::string> environment;
  int secret_fd = -1;  // close-on-exec here, and the one descriptor above 2 that is open in the ranks
  sigset_t signals{};  // blocked in the ranks: those that were blocked before HandledSignals
  bool tag_output = false;
  Rank first_rank = 0;                     // LaunchOptions::first_rank
  std::vector<cpu_set_t> processors = {};  // of each rank here; empty: ranks run where this process may
};

struct RankProcess {
  Rank rank = 0;  // in the job
  pid_t id = -1;  // the id of the process and of its group; -1 once it has been waited for
  int out = -1;   // with tag_output: the read ends of the rank's standard output and error, non-blocking
  int err = -1;
};

// ResourceExhausted: the system refuses, for the reason in errno, what the launcher needs; `what` is "cannot …".
absl::Status Refused(absl::string_view what);

// Environment of the ranks of a job, but for who each is: this process's, with Tutti's own variables replaced.
// Where OMP_NUM_THREADS is not set, the ranks share the processors; with `tells_threads` standard error says so.
std::map<std::string, std::string> RankEnvironment(int ranks, const std::string& job_id,
                                                   const std::string& store_address, int secret_fd, bool tells_threads);

// Starts the rank that is number `local_rank` of this machine in a process group of its own; the rank is killed when
// the calling thread ends, so the main thread must be the caller. NotFound when the program cannot be started,
// ResourceExhausted when the system refuses a process or a descriptor.
absl::StatusOr<RankProcess> StartRank(const ProcessTemplate& common, Rank local_rank);

// What a status of waitpid says: as a text ("exited with code 3", "was ended by SIGKILL"), and as the launcher's exit
// code.
std::string DescribeEnd(int wait_status);
int ExitCodeOf(int wait_status);

}  // namespace tutti

#endif  // TUTTI_BINDINGS_CLI_LAUNCH_PROCESS_H_
