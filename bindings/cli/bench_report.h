// What a benchmark prints: a table with the columns of nccl-tests, and JSON.
#ifndef TUTTI_BINDINGS_CLI_BENCH_REPORT_H_
#define TUTTI_BINDINGS_CLI_BENCH_REPORT_H_

#include <string>

#include "absl/types/span.h"
#include "bindings/cli/bench_options.h"

namespace tutti::cli {

// `on_device`: with what only calls on the memory of GPUs have.
std::string TableHeading(bool on_device);
std::string TableLine(const BenchRow& row);
// One sentence over all rows.
std::string TableFooting(absl::Span<const BenchRow> rows);

// {"rows": […]}, one row per line.
std::string Json(absl::Span<const BenchRow> rows);

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_BENCH_REPORT_H_
