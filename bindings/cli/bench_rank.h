// One rank of a benchmark.
#ifndef TUTTI_BINDINGS_CLI_BENCH_RANK_H_
#define TUTTI_BINDINGS_CLI_BENCH_RANK_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bindings/cli/bench_memory.h"
#include "bindings/cli/bench_options.h"
#include "bindings/cli/bench_pattern.h"
#include "bindings/cli/traffic.h"
#include "tutti/communicator.h"

namespace tutti::cli {

// Measures the calls of one size. Every rank makes the same calls.
class BenchRank {
 public:
  BenchRank(Communicator& communicator, const BenchOptions& options, const Pattern& pattern, const BenchMemory& memory,
            const Traffic& traffic, const CallOptions& call)
      : communicator_(communicator),
        options_(options),
        pattern_(pattern),
        memory_(memory),
        traffic_(traffic),
        call_(call) {}

  absl::StatusOr<BenchRow> Measure();

 private:
  absl::Status Call();
  void WriteInput();
  // One call from fresh input; adds its wrong elements to `wrong`.
  absl::Status Check(std::int64_t& wrong);
  // A barrier of all ranks, which wakes no engine thread that would compete with the next call for a core.
  absl::Status Meet();
  // Makes one call, after rewriting the input when options ask for it; returns the nanoseconds of the call.
  absl::StatusOr<std::int64_t> TimedCall();
  // Time of each call, the maximum over the ranks.
  absl::StatusOr<std::vector<std::int64_t>> TimeCalls();
  // Seconds that `calls` calls take together, the maximum over the ranks.
  absl::StatusOr<double> TimeOfBatch(int calls);
  // Makes the warm-up calls; returns the number of timed calls, which is equal on all ranks: as asked for, or as many
  // as fit into the time.
  absl::StatusOr<int> WarmUp();
  // Microseconds that a call is predicted to take with the schedule of that name.
  absl::StatusOr<double> Predict(const std::string& name);
  template <typename T>
  absl::Status ReduceOverRanks(std::vector<T>& values, DType dtype, ReduceOp op);

  Communicator& communicator_;
  const BenchOptions& options_;
  const Pattern& pattern_;
  const BenchMemory& memory_;
  const Traffic& traffic_;
  CallOptions call_;
};

// Checks what can be checked before ranks are started: InvalidArgument or NotFound names the flag and what would be
// right.
absl::Status CheckBench(const BenchOptions& options, int ranks);

// Measures everything that `options` ask for, which CheckBench has passed. On rank 0 `report` is called with every row
// as soon as the row is measured.
absl::Status RunBench(Communicator& communicator, const BenchOptions& options,
                      const std::function<void(const BenchRow&)>& report);

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_BENCH_RANK_H_
