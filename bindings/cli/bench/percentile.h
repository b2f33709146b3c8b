// The percentiles by which measured times are told; median.h has the median.
#ifndef TUTTI_BINDINGS_CLI_BENCH_PERCENTILE_H_
#define TUTTI_BINDINGS_CLI_BENCH_PERCENTILE_H_

#include <cstddef>
#include <vector>

namespace tutti::cli {

// The smallest of `sorted` (in ascending order, at least one value) that at least `per_mille` thousandths of the values
// do not exceed: 900 for p90, 999 for p99.9. Whole numbers, because 99.9 % of a count is not exact in floating point.
template <typename T>
T PercentileOf(const std::vector<T>& sorted, std::size_t per_mille) {
  const std::size_t count = (sorted.size() * per_mille + 999) / 1000;
  return sorted[count == 0 ? 0 : count - 1];
}

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_BENCH_PERCENTILE_H_
