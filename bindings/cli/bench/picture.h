// Benchmarks as a picture: time and bus bandwidth against the size.
#ifndef TUTTI_BINDINGS_CLI_BENCH_PICTURE_H_
#define TUTTI_BINDINGS_CLI_BENCH_PICTURE_H_

#include <string>

#include "absl/types/span.h"
#include "bindings/cli/bench/record.h"

namespace tutti::cli {

// The number of series that a reader can tell apart in one picture, which says how many it leaves out.
inline constexpr int kMaxSeries = 21;

// An SVG with a curve for each series of the records; predicted times are dashed curves of the same color. Notes say of
// each record whether its results were wrong or not checked.
std::string PictureOf(absl::Span<const BenchRecord> records);

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_BENCH_PICTURE_H_
