// What every collective promises, element by element: the reference of the schedule tests.
#ifndef TESTS_SCHEDULES_EXPECTED_RESULTS_H_
#define TESTS_SCHEDULES_EXPECTED_RESULTS_H_

#include <cstdint>
#include <vector>

#include "tests/kernels/element_values.h"
#include "tutti/collective.h"

namespace tutti {

using kernels::Number;

inline bool IsUnsigned(DType dtype) {
  return dtype == DType::kU8 || dtype == DType::kU16 || dtype == DType::kU32 || dtype == DType::kU64;
}

// Element `i` of the input of `rank`. Integers so small that every order of summation in the accumulator gives the same
// bits, but so large that sums of 16-bit types have to be rounded, so that rounding twice shows. Bools are equal on all
// ranks at some elements, and differ at others. Products of complex numbers turn around in all four directions.
inline Number InputElement(const CollectiveSpec& spec, Rank rank, std::int64_t i) {
  if (spec.dtype == DType::kBool) return static_cast<long double>(i % 3 == 2 ? (rank + i) % 2 : i % 3);
  if (spec.op == ReduceOp::kProd && IsComplex(spec.dtype)) {
    return (rank + i) % 4 == 0 ? Number(1, 2) : Number(0, (rank + i) % 4 == 1 ? -1 : 1);
  }
  if (spec.op == ReduceOp::kProd) return (rank + i) % 4 == 0 ? 3 : 1;
  const std::int64_t value = (rank * 37 + i * 11) % 251;
  if (spec.dtype == DType::kI8) return static_cast<long double>(value % 7 - 3);
  if (spec.dtype == DType::kU8) return static_cast<long double>(value % 8);
  if (SizeOf(spec.dtype) == 1 || IsUnsigned(spec.dtype)) return static_cast<long double>(value);
  if (IsComplex(spec.dtype)) return {static_cast<long double>(value - 100), static_cast<long double>(value % 13)};
  return static_cast<long double>(value - 100);
}

// What ReduceOp::kPremulSum multiplies the elements of `rank` by: products of 16-bit elements have to be rounded.
inline double FactorOf(const CollectiveSpec& spec, Rank rank) {
  constexpr double kFactors[] = {3, -0.5, 1, 2};
  return Reduces(spec.collective) && spec.op == ReduceOp::kPremulSum ? kFactors[rank % 4] : 1;
}

// The contribution of `rank` to a sum: its element times its factor, as an element again.
inline Number Contribution(const CollectiveSpec& spec, Rank rank, std::int64_t i) {
  const Number element = InputElement(spec, rank, i);
  if (spec.op != ReduceOp::kPremulSum) return element;
  std::uint8_t product[16];
  kernels::StoreNumber(spec.dtype, product, 0, element * static_cast<long double>(FactorOf(spec, rank)));
  return kernels::LoadNumber(spec.dtype, product, 0);
}

inline Number Combined(const CollectiveSpec& spec, int size, std::int64_t i) {
  std::vector<Number> values;
  for (Rank rank = 0; rank < size; ++rank) values.push_back(Contribution(spec, rank, i));
  if (size == 1) return values[0];  // nothing is computed, of bools either
  const ReduceOp op = spec.op == ReduceOp::kPremulSum ? ReduceOp::kSum : spec.op;
  return kernels::ReducedNumber(spec.dtype, op, size, values);
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
inline Number OutputElement(const CollectiveSpec& spec, std::int64_t count, Rank rank, int size, std::int64_t i) {
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
