// The rows of benchmarks, sorted into series: rows that differ in their size only, as a curve shows them.
#ifndef TUTTI_BINDINGS_CLI_BENCH_SERIES_H_
#define TUTTI_BINDINGS_CLI_BENCH_SERIES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "bindings/cli/bench/record.h"

namespace tutti::cli {

// One size: the median time of its repeats, and the bandwidth that is reached in this time.
struct SeriesPoint {
  std::int64_t bytes = 0;
  double time_us = 0;
  double busbw_gb_s = 0;
  double predicted_us = 0;  // 0 where nothing is predicted
};

struct Series {
  std::string label;  // the settings in which rows of any of the records differ: "all_reduce bf16 ring"
  std::vector<SeriesPoint> points;
};

// The series of every record, whose labels are equal where their settings are.
std::vector<std::vector<Series>> SeriesOf(absl::Span<const BenchRecord> records);

// For every record, the settings in which all of its rows agree but not all records: "ring, 4 ranks"; "" where there
// are none.
std::vector<std::string> DifferencesOf(absl::Span<const BenchRecord> records);

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_BENCH_SERIES_H_
