// Processes, one per rank, that exchange lines with the process that started them.
#ifndef TUTTI_TESTS_HARNESS_RANK_PROCESSES_H_
#define TUTTI_TESTS_HARNESS_RANK_PROCESSES_H_

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/unique_fd.h"
#include "tutti/dtype.h"

namespace tutti {

// One end of a connection that carries lines. Any thread may call Say, one thread calls Hear.
class Lines {
 public:
  explicit Lines(UniqueFd socket) : socket_(std::move(socket)) {}

  // Sends one line; `line` has no line feed. The line is lost when nobody is at the other end.
  void Say(const std::string& line) const;
  // Waits for the next line; nullopt when the other end is gone or at `deadline`: see ended().
  std::optional<std::string> Hear(absl::Time deadline);
  bool ended() const { return ended_; }
  // Ends a Hear of another thread, and all later ones, as if the other end were gone.
  void StopHearing() const;
  int descriptor() const { return socket_.get(); }
  // Whether Hear has a line without waiting.
  bool has_line() const { return unread_.find('\n') != std::string::npos; }

 private:
  UniqueFd socket_;
  std::string unread_;
  bool ended_ = false;
};

// RankProcesses forks, so a program that uses it must not have started threads. Ranks still alive at the end are
// killed, and so are ranks whose starter dies.
class RankProcesses {
 public:
  // A function that runs in the process of a rank; its result is the exit code.
  using Body = std::function<int(Rank rank, Lines& lines)>;

  RankProcesses(int size, const Body& body);
  ~RankProcesses();
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  int size() const { return static_cast<int>(processes_.size()); }
  pid_t pid(Rank rank) const { return processes_[rank].pid; }
  void Signal(Rank rank, int signal) const;
  // Returns when the rank has stopped, or ended: a SIGCONT that comes earlier would undo the SIGSTOP.
  void Stop(Rank rank) const;
  void Say(Rank rank, const std::string& line) const { processes_[rank].lines.Say(line); }
  std::optional<std::string> Hear(Rank rank, absl::Time deadline) { return processes_[rank].lines.Hear(deadline); }

  // A line of a rank; without a line, the end of that rank's lines, which is told once.
  struct Heard {
    Rank rank = 0;
    std::optional<std::string> line;
  };
  // Waits for the next line of any rank; nullopt at `deadline`, or when the lines of all ranks have ended.
  std::optional<Heard> HearAny(absl::Time deadline);

  // Waits for the end of a process and returns its status, as of waitpid; nullopt at `deadline`.
  std::optional<int> AwaitEnd(Rank rank, absl::Time deadline);

 private:
  struct Process {
    pid_t pid = -1;
    Lines lines;
    bool end_told = false;
    std::optional<int> wait_status;
  };

  std::vector<Process> processes_;
};

}  // namespace tutti

#endif  // TUTTI_TESTS_HARNESS_RANK_PROCESSES_H_
