// A world whose ranks are processes, to be killed, stopped and continued.
#ifndef TUTTI_TESTS_HARNESS_PROCESS_WORLD_H_
#define TUTTI_TESTS_HARNESS_PROCESS_WORLD_H_

#include <functional>
#include <memory>
#include <string>

#include "base/unique_fd.h"
#include "tests/harness/rank_processes.h"
#include "tutti/communicator.h"

namespace tutti {

// ProcessWorld forks, so a test program that uses it must make no transport of its own. Ranks still alive at the end
// are killed.
class ProcessWorld {
 public:
  // A function that sends one line to the test.
  using Report = std::function<void(const std::string& line)>;
  using Body = std::function<void(Communicator& communicator, const Report& report)>;

  // A function that wraps the transport of each rank before it is connected; null: transports stay as they are.
  using Wrap = std::function<std::unique_ptr<Transport>(std::unique_ptr<Transport>)>;

  // Runs `body` in `size` processes over UCX; each `ranks_per_node` consecutive ranks act as a node (0: all ranks do).
  // A rank that cannot join reports why.
  ProcessWorld(int size, const CommunicatorOptions& options, const Body& body, const Wrap& wrap = nullptr,
               int ranks_per_node = 0);
  ~ProcessWorld();
  ProcessWorld(const ProcessWorld&) = delete;
  ProcessWorld& operator=(const ProcessWorld&) = delete;

  void Signal(Rank rank, int signal) { processes_->Signal(rank, signal); }
  void Stop(Rank rank) { processes_->Stop(rank); }
  pid_t pid(Rank rank) const { return processes_->pid(rank); }
  // The next line that `rank` reports; "" when the rank ends, or reports nothing for a minute.
  std::string NextLine(Rank rank);

 private:
  std::string directory_;
  UniqueFd failed_checks_;  // an eventfd that the processes of all ranks share
  std::unique_ptr<RankProcesses> processes_;
};

}  // namespace tutti

#endif  // TUTTI_TESTS_HARNESS_PROCESS_WORLD_H_
