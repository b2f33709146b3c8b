// The commands that start one job on several hosts. Tutti starts nothing on other machines: a user, or a script of the
// user's, runs each command on its host.
#ifndef TUTTI_BINDINGS_CLI_LAUNCH_HOSTS_H_
#define TUTTI_BINDINGS_CLI_LAUNCH_HOSTS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "bindings/cli/launch/launch.h"

namespace tutti::cli {

struct HostRanks {
  std::string host;
  int ranks = 1;
};

// The hosts of a file in the form of Open MPI ("node1 slots=4") or MPICH ("node1:4"), one in a line; one rank where
// nothing else is said. An IPv6 address is in brackets. InvalidArgument names the line that is wrong, also where a host
// is in two lines, or where all lines together name too many ranks. NotFound when the file cannot be read.
absl::StatusOr<std::vector<HostRanks>> ReadHosts(const std::string& file);

// For each host a line "# HOST: ranks A to B" and the command, for `sh`, that starts these ranks of the program of
// `options` there and supervises them as `options` say, where only the numbers of ranks are the host's own. Ranks meet
// at `port` of the first host; a comment warns where other hosts cannot find it by its name. The job secret is read
// from `secret_file`, or, where `secret_file` is empty, from ~/.tutti_job_secret of each host.
std::string CommandsOfHosts(absl::Span<const HostRanks> hosts, int port, const std::string& secret_file,
                            const LaunchOptions& options);

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_LAUNCH_HOSTS_H_
