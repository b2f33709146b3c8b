// Resources that a world must give back: memory, descriptors and threads of a process, and shared memory of the
// machine.
#ifndef TUTTI_TESTS_CHURN_USAGE_H_
#define TUTTI_TESTS_CHURN_USAGE_H_

#include <sys/types.h>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "tutti/communicator.h"

namespace tutti::churn {

// What this process holds.
struct Usage {
  std::int64_t descriptors = 0;
  std::int64_t threads = 0;
  // Bytes of the heap in use. Resident memory would say less: pages of the arena that were ever touched count there.
  std::int64_t heap_bytes = 0;
};
Usage OwnUsage();

// The largest piece of the arena that is free.
std::int64_t LargestFreePiece(Communicator& communicator);

// Files of /dev/shm and segments of System V that the machine has.
class SharedMemory {
 public:
  static SharedMemory Now();

  // Describes leaks: what has come since `before` and stays, and belongs to the processes `dead` or to no living
  // process. "" when there are none. When something has come, the function waits for a while, because other programs
  // make such files and remove them at once.
  static std::string LeftBehind(const SharedMemory& before, const std::vector<pid_t>& dead);

 private:
  std::string NewSince(const SharedMemory& before, const std::vector<pid_t>& dead) const;

  struct Segment {
    std::int64_t id;
    pid_t creator;
    bool operator<(const Segment& other) const { return id < other.id; }
  };
  std::set<std::string> files_;
  std::set<Segment> segments_;
};

}  // namespace tutti::churn

#endif  // TUTTI_TESTS_CHURN_USAGE_H_
