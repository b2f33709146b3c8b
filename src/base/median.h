// The median, by which measured times are told where a few of them may be far too long.
#ifndef TUTTI_BASE_MEDIAN_H_
#define TUTTI_BASE_MEDIAN_H_

#include <algorithm>
#include <cstddef>
#include <vector>

namespace tutti {

// The median of `values`, of which there is at least one: of an even number of values, the mean of the two in the
// middle.
inline double MedianOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace tutti

#endif  // TUTTI_BASE_MEDIAN_H_
