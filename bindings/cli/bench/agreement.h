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
// CheckAgreementOnFlags before they measure, except ranks that refuse their own flags or files and end: the others then
// wait in vain, here or in BootstrapFromEnvironment.
absl::Status CheckAgreementOnFlags(const Bootstrap& bootstrap, const BenchFlags& flags);

// The error of a wait for other ranks; DeadlineExceeded says then that a missing rank may have refused its arguments.
absl::Status WithHintOnRefusal(absl::Status status);

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_BENCH_AGREEMENT_H_
