// A whole benchmark: the collectives and sizes that options ask for.
#ifndef TUTTI_BINDINGS_CLI_BENCH_RUN_H_
#define TUTTI_BINDINGS_CLI_BENCH_RUN_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "bindings/cli/bench_options.h"
#include "tutti/communicator.h"

namespace tutti::cli {

// Checks what can be checked before ranks are started: InvalidArgument or NotFound names the flag and what would be
// right.
absl::Status CheckBench(const BenchOptions& options, int ranks);

// Functions of rank 0 that hear of a benchmark's results as soon as these are known.
struct BenchReport {
  std::function<void(const BenchRow&)> row;
  std::function<void(const std::string&)> note;  // what is not measured, and why
};

// Measures everything that `options` ask for, which CheckBench has passed.
absl::Status RunBench(Communicator& communicator, const BenchOptions& options, const BenchReport& report);

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_BENCH_RUN_H_
