// Benchmarks beside each other, size by size.
#ifndef TUTTI_BINDINGS_CLI_BENCH_COMPARISON_H_
#define TUTTI_BINDINGS_CLI_BENCH_COMPARISON_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "bindings/cli/bench/record.h"

namespace tutti::cli {

// A table with the times of all records and, of each but the first, the time as a multiple of the first one's; its
// heading says in which settings the records differ, and whose results were wrong or not checked. InvalidArgument when
// no size of any series is in all records.
absl::StatusOr<std::string> Comparison(absl::Span<const BenchRecord> records);

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_BENCH_COMPARISON_H_
