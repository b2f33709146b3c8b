// What a benchmark prints: a table with the columns of nccl-tests, and JSON.
#ifndef TUTTI_BINDINGS_CLI_BENCH_REPORT_H_
#define TUTTI_BINDINGS_CLI_BENCH_REPORT_H_

#include <string>

#include "absl/types/span.h"
#include "bindings/cli/bench_options.h"

namespace tutti::cli {

std::string TableHeading();
std::string TableLine(const BenchRow& row);
// One sentence over all rows.
std::string TableFooting(absl::Span<const BenchRow> rows);

// {"rows": […]}, one row per line.
std::string Json(absl::Span<const BenchRow> rows);

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_BENCH_REPORT_H_
