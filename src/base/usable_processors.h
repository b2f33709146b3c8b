// How many processors this process can keep busy: no more than it may run on, and no more than the time that a control
// group (cgroup) of Linux gives it, as that of a container does.
#ifndef TUTTI_BASE_USABLE_PROCESSORS_H_
#define TUTTI_BASE_USABLE_PROCESSORS_H_

#include <string>
#include <vector>

namespace tutti {

// The limit of a control group on the processor time of its processes together.
struct ProcessorQuota {
  int processors = 0;  // that the time is worth, rounded up
  std::string group;   // equal for processes of one group, and different for those of different groups of a machine
};

// The limits of the groups that this process is in, from the outermost to its own; those that are not seen are missing.
// `root` is the folder that has proc/ and sys/: tests make their own.
std::vector<ProcessorQuota> QuotasOfProcess(const std::string& root = "/");

// The number of processors that the calling thread may run on, or fewer where one of QuotasOfProcess(root) is worth
// fewer. Threads that spin on more of them than this stop each other. At least 1.
int UsableProcessors(const std::string& root = "/");

}  // namespace tutti

#endif  // TUTTI_BASE_USABLE_PROCESSORS_H_
