// Counts the system calls of ranks that are processes, by ptrace, which every kernel and most containers allow a
// parent.
#ifndef TUTTI_TESTS_HARNESS_TRACED_RANKS_H_
#define TUTTI_TESTS_HARNESS_TRACED_RANKS_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "tutti/dtype.h"

namespace tutti {

// What a rank asked of the kernel during one phase.
struct SystemCalls {
  // Calls by name. Those that wait are named apart by what they do: "futex wait", "futex wake".
  std::map<std::string, std::int64_t> calls;
  std::int64_t bytes_sent = 0;  // by send, sendmsg, sendto, write and writev
  std::int64_t bytes_received = 0;

  std::string ToString() const;
};

// Begins a phase of the calling process, whose calls are counted together; called by a rank, any thread of which then
// counts. Costs one call of the kernel, which is not counted.
void BeginPhase(int phase);
inline constexpr int kNotCounted = 0;
inline constexpr int kEnd = 1;  // the rank is not let go on
inline constexpr int kFirstPhase = 2;

class TracedRanks {
 public:
  // Begins to trace `ranks`, processes that this thread has forked. PermissionDenied where ptrace is forbidden; the
  // ranks go on then.
  static absl::StatusOr<TracedRanks> Attach(std::vector<pid_t> ranks);

  // Traces until every rank has begun kEnd. Unavailable names a rank that has ended before.
  absl::Status TraceUntilEnd();
  // Kills the ranks, which leaves their statuses to whoever waits for them.
  void Kill();

  // What `rank` did in `phase`.
  const SystemCalls& counts(Rank rank, int phase) { return counts_[{rank, phase}]; }

 private:
  struct Thread {
    Rank rank = 0;
    bool in_call = false;
    int phase = kNotCounted;  // in which the call under way began
    std::int64_t number = -1;
  };

  Thread& ThreadOf(pid_t thread);
  // Handles the call that `thread` begins or ends; false: the thread is to stay where it is.
  bool HandleCall(pid_t thread);

  std::vector<pid_t> ranks_;
  std::vector<int> phases_;
  std::map<pid_t, Thread> threads_;
  std::map<std::pair<Rank, int>, SystemCalls> counts_;
};

}  // namespace tutti

#endif  // TUTTI_TESTS_HARNESS_TRACED_RANKS_H_
