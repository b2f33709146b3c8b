// Ranks as processes, to be killed, stopped and continued.
#ifndef TUTTI_TESTS_HARNESS_PROCESS_WORLD_H_
#define TUTTI_TESTS_HARNESS_PROCESS_WORLD_H_

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "tutti/communicator.h"

namespace tutti {

// Forks; so a test program that uses it must make no transport of its own. Ranks still alive at the end are killed.
class ProcessWorld {
 public:
  // Sends one line to the test.
  using Report = std::function<void(const std::string& line)>;
  using Body = std::function<void(Communicator& communicator, const Report& report)>;

  // Runs `body` in `size` processes over UCX. A rank that cannot join reports why.
  ProcessWorld(int size, const CommunicatorOptions& options, const Body& body);
  ~ProcessWorld();
  ProcessWorld(const ProcessWorld&) = delete;
  ProcessWorld& operator=(const ProcessWorld&) = delete;

  void Signal(Rank rank, int signal);
  // The next line that `rank` reports; "" when it ends, or says nothing for a minute.
  std::string NextLine(Rank rank);

 private:
  struct Process {
    pid_t pid = -1;
    UniqueFd lines;
    std::string unread;
  };

  std::string directory_;
  std::vector<Process> processes_;
};

}  // namespace tutti

#endif  // TUTTI_TESTS_HARNESS_PROCESS_WORLD_H_
