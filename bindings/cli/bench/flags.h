// The flags of `tutti bench`.
#ifndef TUTTI_BINDINGS_CLI_BENCH_FLAGS_H_
#define TUTTI_BINDINGS_CLI_BENCH_FLAGS_H_

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "bindings/cli/bench/options.h"
#include "bindings/cli/bench/outputs.h"
#include "bindings/cli/bench/report.h"
#include "bindings/cli/bench/sweep.h"

namespace tutti::cli {

// The wishes of the user, as far as flags say them.
struct BenchFlags {
  BenchOptions options;  // what all cases share
  BenchSweep sweep;
  int repeats = 1;
  BenchOutputs outputs;
  bool in_place = false, out_of_place = false;  // both: each; none: in place
  bool no_check = false;
  bool latency = false;

  TableColumns columns() const {
    return {.host = options.on_device(), .place = in_place && out_of_place, .latency = latency};
  }
};

void AddBenchFlags(CLI::App& bench, BenchFlags& flags);

// Refuses flags of nccl-tests and of the OSU benchmarks that mean something else here, or nothing; the error says what
// would be right.
void RefuseFlagsOfOthers(CLI::App& bench);

// The cases of the flags for `ranks` ranks. InvalidArgument or NotFound when there is nothing to measure.
absl::StatusOr<BenchCases> CasesOfFlags(const BenchFlags& flags, int ranks);

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_BENCH_FLAGS_H_
