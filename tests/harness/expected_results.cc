#include "tests/harness/expected_results.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"

namespace tutti {

using kernels::Number;

namespace {

bool IsUnsigned(DType dtype) {
  return dtype == DType::kU8 || dtype == DType::kU16 || dtype == DType::kU32 || dtype == DType::kU64;
}

// After so many elements the inputs of all ranks begin again.
std::int64_t PeriodOf(const CollectiveSpec& spec) {
  if (spec.dtype == DType::kBool) return 6;
  return spec.op == ReduceOp::kProd ? 4 : 251;
}

}  // namespace

Number InputElement(const CollectiveSpec& spec, Rank rank, std::int64_t i) {
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

double FactorOf(const CollectiveSpec& spec, Rank rank) {
  constexpr double kFactors[] = {3, -0.5, 1, 2};
  return Reduces(spec.collective) && spec.op == ReduceOp::kPremulSum ? kFactors[rank % 4] : 1;
}

namespace {

// The contribution of `rank` to a sum: its element times its factor, as an element again.
Number Contribution(const CollectiveSpec& spec, Rank rank, std::int64_t i) {
  const Number element = InputElement(spec, rank, i);
  if (spec.op != ReduceOp::kPremulSum) return element;
  std::uint8_t product[16];
  kernels::StoreNumber(spec.dtype, product, 0, element * static_cast<long double>(FactorOf(spec, rank)));
  return kernels::LoadNumber(spec.dtype, product, 0);
}

// Element `i` of all ranks, reduced.
Number Combined(const CollectiveSpec& spec, int size, std::int64_t i) {
  absl::InlinedVector<Number, 16> values;
  for (Rank rank = 0; rank < size; ++rank) values.push_back(Contribution(spec, rank, i));
  if (size == 1) return values[0];  // nothing is computed, of bools either
  const ReduceOp op = spec.op == ReduceOp::kPremulSum ? ReduceOp::kSum : spec.op;
  return kernels::ReducedNumber(spec.dtype, op, size, values);
}

// Element `i` of the output of `rank`; `combined` gives elements of all ranks, reduced.
Number ElementOf(const CollectiveSpec& spec, std::int64_t count, Rank rank, std::int64_t i,
                 absl::FunctionRef<Number(std::int64_t)> combined) {
  switch (spec.collective) {
    case Collective::kAllReduce:
    case Collective::kReduce:
      return combined(i);
    case Collective::kReduceScatter:
      return combined(rank * count + i);
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

}  // namespace

std::int64_t BlockCount(std::int64_t unit, Rank from, Rank to) { return (from * 3 + to * 5) % 4 * unit; }

CollectiveSpec SpecOf(CollectiveSpec spec, std::int64_t count, Rank rank, int size) {
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

Number OutputElement(const CollectiveSpec& spec, std::int64_t count, Rank rank, int size, std::int64_t i) {
  return ElementOf(spec, count, rank, i, [&](std::int64_t at) { return Combined(spec, size, at); });
}

void FillInput(const CollectiveSpec& spec, Rank rank, void* data, std::int64_t first, std::int64_t count) {
  const std::int64_t period = std::min(count, PeriodOf(spec));
  for (std::int64_t i = 0; i < period; ++i) {
    kernels::StoreNumber(spec.dtype, data, first + i, InputElement(spec, rank, i));
  }
  std::byte* const begin = static_cast<std::byte*>(data) + first * SizeOf(spec.dtype);
  for (std::int64_t i = period; i < count; i += period) {
    const std::int64_t elements = std::min(period, count - i);
    std::memcpy(begin + i * SizeOf(spec.dtype), begin, static_cast<std::size_t>(elements * SizeOf(spec.dtype)));
  }
}

void FillOutput(const CollectiveSpec& spec, std::int64_t count, Rank rank, int size, void* data) {
  std::vector<std::optional<Number>> known(static_cast<std::size_t>(PeriodOf(spec)));
  const auto combined = [&](std::int64_t i) {
    std::optional<Number>& number = known[static_cast<std::size_t>(i % PeriodOf(spec))];
    if (!number.has_value()) number = Combined(spec, size, i);
    return *number;
  };
  const std::int64_t elements = OutputCount(spec, rank, size);
  for (std::int64_t i = 0; i < elements; ++i) {
    kernels::StoreNumber(spec.dtype, data, i, ElementOf(spec, count, rank, i, combined));
  }
}

std::optional<std::int64_t> FirstWrongElement(const CollectiveSpec& spec, std::int64_t count, Rank rank, int size,
                                              const void* out) {
  const std::int64_t elements = OutputCount(spec, rank, size);
  const std::int64_t bytes = SizeOf(spec.dtype);
  std::vector<std::byte> expected(static_cast<std::size_t>(elements * bytes));
  FillOutput(spec, count, rank, size, expected.data());
  for (std::int64_t i = 0; i < elements; ++i) {
    const bool same_bits =
        std::memcmp(static_cast<const std::byte*>(out) + i * bytes, expected.data() + i * bytes, bytes) == 0;
    // Zeros may differ in their signs.
    if (same_bits || kernels::LoadNumber(spec.dtype, out, i) == kernels::LoadNumber(spec.dtype, expected.data(), i)) {
      continue;
    }
    return i;
  }
  return std::nullopt;
}

}  // namespace tutti
