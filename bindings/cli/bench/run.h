// A whole benchmark: every case, at every size.
#ifndef TUTTI_BINDINGS_CLI_BENCH_RUN_H_
#define TUTTI_BINDINGS_CLI_BENCH_RUN_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "bindings/cli/bench/options.h"
#include "tutti/communicator.h"

namespace tutti::cli {

// Checks what can be checked of a case before ranks are started: InvalidArgument names the flag and what would be
// right, NotFound the schedules of the collective.
absl::Status CheckBench(const BenchOptions& options, int ranks);

// Functions of rank 0 that hear of a benchmark's results as soon as these are known.
struct BenchReport {
  std::function<void(const BenchRow&)> row;
  std::function<void(const std::string&)> note;  // what is not measured, and why
};

// Measures the cases, which CheckBench has passed and which have one `peer`, one after the other, and all of them anew
// for each repeat. All ranks call RunBench alike.
absl::Status RunBench(Communicator& communicator, absl::Span<const BenchOptions> cases, int repeats,
                      const BenchReport& report);

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_BENCH_RUN_H_
