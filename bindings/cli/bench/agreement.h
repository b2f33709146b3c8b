// Whether all ranks of a benchmark were started with the same arguments.
#ifndef TUTTI_BINDINGS_CLI_BENCH_AGREEMENT_H_
#define TUTTI_BINDINGS_CLI_BENCH_AGREEMENT_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "bindings/cli/bench/flags.h"
#include "tutti/bootstrap.h"

namespace tutti::cli {

// The names and values of the flags that all ranks must have alike: those that say what is measured, and how. Files are
// written by rank 0 alone, so that ranks may name different ones.
std::vector<std::pair<std::string, std::string>> FieldsOf(const BenchFlags& flags);

// InvalidArgument, the same on every rank, names the flags that differ, the ranks and both values. All ranks call
// CheckAgreementOnFlags, before one of them acts on its flags.
absl::Status CheckAgreementOnFlags(const Bootstrap& bootstrap, const BenchFlags& flags);

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_BENCH_AGREEMENT_H_
