// What a benchmark prints: a table with the columns of nccl-tests.
#ifndef TUTTI_BINDINGS_CLI_BENCH_REPORT_H_
#define TUTTI_BINDINGS_CLI_BENCH_REPORT_H_

#include <string>

#include "absl/types/span.h"
#include "bindings/cli/bench/options.h"
#include "bindings/cli/bench/record.h"
#include "tutti/version.h"

namespace tutti::cli {

// What not every table has.
struct TableColumns {
  bool host = false;     // the time of the host, which only calls on the memory of GPUs have
  bool place = false;    // whether the call is in place
  bool latency = false;  // below each line LatencyLines
  // Whether --bind would keep ranks from one processor: it is not given, and a node has a processor for each of its
  // ranks.
  bool may_bind = false;
};

std::string TableHeading(const TableColumns& columns);
std::string TableLine(const BenchRow& row, const TableColumns& columns);
// Why the longest call of a row took as long, in words; `about` has the hosts of the ranks.
std::string LatencyLines(const BenchRow& row, const BenchAbout& about);
// Whether all rows were right, the average of their bus bandwidth, why that may not be the rate of a link, and with
// `may_bind` whether ranks shared a processor.
std::string TableFooting(absl::Span<const BenchRow> rows, bool may_bind);

// The doubt about the results of the rows: "results were wrong (3 elements)" or "results were not checked"; "" where
// every result was right.
std::string DoubtOn(absl::Span<const BenchRow> rows);

// The doubt about the times of a build that is not optimized, or is sanitized; "" of any other build.
std::string DoubtOn(const BuildSummary& build);

// Microseconds with as many digits as are of interest.
std::string Microseconds(double microseconds);
// A bandwidth with two decimals, as in nccl-tests, or more where it takes more for three digits that are not zero.
std::string GigabytesPerSecond(double bandwidth);

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_BENCH_REPORT_H_
