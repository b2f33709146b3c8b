// What every collective promises, element by element: the reference of the schedule tests.
#ifndef TESTS_SCHEDULES_EXPECTED_RESULTS_H_
#define TESTS_SCHEDULES_EXPECTED_RESULTS_H_

#include <cstdint>
#include <vector>

#include "tests/kernels/element_values.h"
#include "tutti/collective.h"

namespace tutti {

// Element `i` of the input of `rank`. Integers so small that every order of summation in the accumulator gives the same
// bits, but so large that sums of 16-bit types have to be rounded, so that rounding twice shows.
inline long double InputElement(const CollectiveSpec& spec, Rank rank, std::int64_t i) {
  if (spec.op == ReduceOp::kProd) return (rank + i) % 4 == 0 ? 3 : 1;
  const std::int64_t value = (rank * 37 + i * 11) % 251;
  if (spec.dtype == DType::kI8) return static_cast<long double>(value % 7 - 3);
  if (spec.dtype == DType::kU8) return static_cast<long double>(value % 8);
  return static_cast<long double>(value - 100);
}

inline long double Combined(const CollectiveSpec& spec, int size, std::int64_t i) {
  std::vector<long double> values;
  for (Rank rank = 0; rank < size; ++rank) values.push_back(InputElement(spec, rank, i));
  return kernels::ReducedElement(spec.dtype, spec.op, size, values);
}

// The block that all_to_all_v moves from one rank to another: `unit` times 0, 1, 2 or 3 elements.
inline std::int64_t BlockCount(std::int64_t unit, Rank from, Rank to) { return (from * 3 + to * 5) % 4 * unit; }

// The call as `rank` makes it. `count` is spec.count, but for all_to_all_v, where it is the unit of the blocks.
inline CollectiveSpec SpecOf(CollectiveSpec spec, std::int64_t count, Rank rank, int size) {
  if (spec.collective == Collective::kAllToAllV) {
    for (Rank peer = 0; peer < size; ++peer) {
      spec.send_counts.push_back(BlockCount(count, rank, peer));
      spec.recv_counts.push_back(BlockCount(count, peer, rank));
    }
  } else if (spec.collective != Collective::kBarrier) {
    spec.count = count;
  }
  return spec;
}

// Element `i` of the output of `rank`.
inline long double OutputElement(const CollectiveSpec& spec, std::int64_t count, Rank rank, int size, std::int64_t i) {
  switch (spec.collective) {
    case Collective::kAllReduce:
    case Collective::kReduce:
      return Combined(spec, size, i);
    case Collective::kReduceScatter:
      return Combined(spec, size, rank * count + i);
    case Collective::kAllGather:
    case Collective::kGather:
      return InputElement(spec, static_cast<Rank>(i / count), i % count);
    case Collective::kBroadcast:
      return InputElement(spec, spec.root, i);
    case Collective::kScatter:
      return InputElement(spec, spec.root, rank * count + i);
    case Collective::kAllToAll:
      return InputElement(spec, static_cast<Rank>(i / count), rank * count + i % count);
    case Collective::kAllToAllV: {
      Rank from = 0;
      for (; i >= BlockCount(count, from, rank); ++from) i -= BlockCount(count, from, rank);
      for (Rank earlier = 0; earlier < rank; ++earlier) i += BlockCount(count, from, earlier);
      return InputElement(spec, from, i);
    }
    case Collective::kBarrier:
    case Collective::kSend:
    case Collective::kRecv:
      return 0;
  }
  return 0;
}

}  // namespace tutti

#endif  // TESTS_SCHEDULES_EXPECTED_RESULTS_H_
