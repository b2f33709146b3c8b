// The ranks of `tutti launch` while they run.
#ifndef TUTTI_BINDINGS_CLI_LAUNCH_JOB_H_
#define TUTTI_BINDINGS_CLI_LAUNCH_JOB_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "bindings/cli/launch/launch.h"
#include "bindings/cli/launch/output.h"
#include "bindings/cli/launch/process.h"
#include "bindings/cli/launch/signals.h"
#include "tutti/store.h"

namespace tutti {

// Belongs to the process that started the ranks, and to the one thread that waits there. The thread never waits for a
// single reader, rank or signal: a slow reader holds back only the ranks that write to that reader.
class Job {
 public:
  // `front` is a descriptor at whose end (POLLHUP) all ranks are killed; `store` hears which ranks have ended.
  Job(const LaunchOptions& options, const HandledSignals& signals, int front, TcpStoreServer& store);
  // Kills what still runs, if the job did not end well.
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  // Starts the ranks, fewer when the job ends meanwhile. The error is that of StartRank.
  absl::Status Start(const ProcessTemplate& common);
  // Waits for the ranks and for the readers of their output (as LaunchOptions says); the launcher's exit code.
  int Run();

 private:
  // Output of one rank, on its way to an outlet.
  struct Stream {
    int fd = -1;
    Outlet* to = nullptr;
    LineTagger tagger;
    std::size_t left = SIZE_MAX;  // bytes that are still to be read
  };

  void Follow(Rank rank, int from, Outlet& to);
  // Waits for a signal, output, a reader or the end of the front, at most until `until_ns`, and handles it. Times are
  // those of MonotonicNanos.
  void Step(std::int64_t until_ns);
  void PassOnSignals();
  void Reap();
  void Ended(RankProcess& process, int wait_status);
  void KillTheLate();
  void Copy(Stream& stream);
  void CloseStream(Stream& stream);
  void WriteOut(Outlet& outlet);
  void DeliverWhatIsLeft();
  std::size_t waiting() const { return out_.waiting() + own_err_.waiting(); }

  void Report(absl::string_view text);
  void EndBy(std::int64_t end_ns);
  void SignalAll(int signal);

  const LaunchOptions& options_;
  const HandledSignals& signals_;
  const int front_;
  TcpStoreServer& store_;
  Outlet out_;
  Outlet own_err_;
  Outlet& err_;  // out_ when standard output and error are one file, so that lines stay whole
  std::vector<RankProcess> ranks_;
  std::deque<Stream> streams_;
  int running_ = 0;
  bool front_died_ = false;
  bool output_lost_ = false;
  std::optional<int> first_failure_;        // the exit code of the first rank that failed, not by a signal of ending_
  std::vector<int> ending_;                 // the signals that end ranks; the first one ends the job
  std::optional<std::int64_t> kill_at_ns_;  // set once the ranks have been told to end
  std::int64_t last_written_ns_ = 0;
};

}  // namespace tutti

#endif  // TUTTI_BINDINGS_CLI_LAUNCH_JOB_H_
