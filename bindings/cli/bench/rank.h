// One rank of a benchmark.
#ifndef TUTTI_BINDINGS_CLI_BENCH_RANK_H_
#define TUTTI_BINDINGS_CLI_BENCH_RANK_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "bindings/cli/bench/caller.h"
#include "bindings/cli/bench/memory.h"
#include "bindings/cli/bench/options.h"
#include "bindings/cli/pattern.h"
#include "bindings/cli/traffic.h"
#include "tutti/communicator.h"

namespace tutti {
class ProcessorLine;
}

namespace tutti::cli {

// Measures the calls of one size. Every rank makes the same calls.
class BenchRank {
 public:
  struct Used {
    // How often the thread of the calls has lost its processor to another one, and how often it slept.
    std::int64_t preempted = 0;
    std::int64_t slept = 0;
    // The processor time of the engine's thread, and of its waits.
    std::int64_t engine_cpu_ns = 0;
    std::int64_t engine_waiting_ns = 0;
  };

  BenchRank(Communicator& communicator, const BenchOptions& options, Pattern& pattern, BenchMemory& memory,
            const Traffic& traffic, const CallOptions& call)
      : communicator_(communicator),
        options_(options),
        pattern_(pattern),
        memory_(memory),
        traffic_(traffic),
        call_(call),
        element_(SizeOf(traffic.spec.dtype)) {}

  // One row for each of `callers`, which are measured in turns; the first of them, Tutti, determines how long.
  absl::StatusOr<std::vector<BenchRow>> Measure(absl::Span<BenchCaller* const> callers);

 private:
  struct Measured {
    BenchCaller* caller = nullptr;
    int window = 1;  // calls
    std::int64_t wrong = 0;
    // Nanoseconds of windows, until all their calls have ended.
    std::vector<std::int64_t> times = {};
    // Nanoseconds that this rank, and then the rank that stood longest, stood in line for a processor in each window;
    // with options.latency on the host.
    std::vector<std::int64_t> in_line = {};
    // Nanoseconds of all windows together, until all their calls have ended and until the host has made them, each on
    // the rank that took longest.
    std::int64_t total = 0;
    std::int64_t host_total = 0;
    // The longest window: its number, and the times that the ranks took, and stood in line.
    std::size_t longest = 0;
    std::vector<std::int64_t> of_ranks = {};
    std::vector<std::int64_t> in_line_of_ranks = {};
  };

  // Makes one call and waits for it.
  absl::Status Call(BenchCaller& caller);
  absl::Status WriteInput();
  // One call from fresh input; adds its wrong elements to `wrong`.
  absl::Status Check(BenchCaller& caller, std::int64_t& wrong);
  // The wrong elements of a result: those that differ from the exact one, or, where a codec loses some of it, from that
  // of rank 0. All ranks call CountWrong.
  absl::Status CountWrong(const BenchCaller& caller, std::int64_t& wrong);
  absl::Status CheckAll();
  // A barrier of all ranks, which wakes no engine thread that would compete with the next call for a core.
  absl::Status Meet();
  // The rank rewrites its input and sleeps, where options ask for it before a call, and then meets the others.
  absl::Status PrepareCall();
  // Prepares and makes the calls of a window, and notes their times.
  absl::Status TimeWindow(Measured& measured);
  // So many windows of every caller, in turns, whose times replace the ones noted before.
  absl::Status TimeWindows(int windows);
  // The times of the calls that count, the maximum over the ranks.
  absl::Status TimeCalls();
  // Gathers what all ranks took in the longest window of a caller, whose times are now the maxima over the ranks; `own`
  // are those of this rank.
  absl::Status GatherLongest(Measured& measured, const std::vector<std::int64_t>& own);
  // Gathers how long all ranks stood in line for a processor in that window.
  absl::Status GatherInLine(Measured& measured);
  // Seconds that so many windows of the first caller take together with their pauses, the maximum over the ranks.
  absl::StatusOr<double> TimeOfBatch(int windows);
  // Makes the warm-up calls; returns the number of timed windows, which is equal on all ranks: those of the calls asked
  // for, or as many as fit into the time.
  absl::StatusOr<int> WarmUp();
  absl::StatusOr<BenchRow> RowOf(Measured& measured);
  // How long ranks stood in line; measured.times are in the order of the calls. nullopt where that is not known.
  std::optional<ProcessorWaits> WaitsOf(const Measured& measured) const;
  // Microseconds that a call is predicted to take with the schedule of that name.
  absl::StatusOr<double> Predict(std::string name);
  template <typename T>
  absl::Status ReduceOverRanks(std::vector<T>& values, DType dtype, ReduceOp op);

  Communicator& communicator_;
  const BenchOptions& options_;
  Pattern& pattern_;
  BenchMemory& memory_;
  const Traffic& traffic_;
  const CallOptions& call_;
  const std::int64_t element_;
  std::vector<Measured> measured_;
  std::shared_ptr<const ProcessorLine> line_;  // of this rank's thread; null where nothing is to be told of it
  Used used_;  // by this rank, and then by all ranks together, in the windows that were timed last
};

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_BENCH_RANK_H_
