// The processors of this machine: their name, and the shares of them that --bind gives to ranks.
#ifndef TUTTI_BINDINGS_CLI_PROCESSORS_H_
#define TUTTI_BINDINGS_CLI_PROCESSORS_H_

#include <sched.h>

#include <istream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tutti/dtype.h"

namespace tutti::cli {

// The first name of a processor in `cpuinfo`, which has the text of /proc/cpuinfo; "unknown processor" where there is
// none.
std::string ProcessorName(std::istream& cpuinfo);

// The processors of this machine, and how many of them this process can keep busy, where these are fewer:
// "2 of 64 × AMD EPYC".
std::string DescribeProcessors();

// The processors of each of `ranks` ranks: equal shares of those on which this process may run, in the order of their
// numbers. FailedPrecondition where there are fewer processors than ranks.
absl::StatusOr<std::vector<cpu_set_t>> SharesOfProcessors(int ranks);

// Binds the calling thread, and the threads that it starts, to the share of rank `local_rank` of `local_size`.
absl::Status BindToShare(Rank local_rank, int local_size);

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_PROCESSORS_H_
