#include "bindings/cli/pattern.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace tutti::cli {
namespace {

constexpr std::int64_t kPeriod = 4093;  // a prime number

// Every rank of a large world has a Pattern, and tables of all ranks in each would take gigabytes. A check of an
// all_reduce needs two; one of an all_gather makes tables anew.
constexpr std::size_t kMaxTables = 16;

// The largest n such that 0 … n are all exact in the dtype.
std::int64_t LargestExact(DType dtype) {
  switch (dtype) {
    case DType::kI8:
    case DType::kF8E4M3FN:  // moved as bytes: nothing computes with f8
    case DType::kF8E5M2:
      return 127;
    case DType::kU8:
      return 255;
    case DType::kBF16:
      return 256;
    case DType::kF16:
      return 2048;
    default:
      return 1 << 24;
  }
}

// A number in 0 … bound-1 that looks random.
std::int64_t Mixed(int rank, std::int64_t index, std::int64_t bound) {
  std::uint64_t bits = static_cast<std::uint64_t>(index) * 0x9E3779B97F4A7C15 + static_cast<std::uint64_t>(rank);
  bits = (bits ^ (bits >> 29)) * 0xBF58476D1CE4E5B9;
  return static_cast<std::int64_t>((bits >> 33) % static_cast<std::uint64_t>(bound));
}

std::int64_t ValueOf(ReduceOp op, DType dtype, int rank, int size, std::int64_t index) {
  const bool chosen = index % size == rank;
  if (dtype == DType::kBool) return Mixed(rank, index, 2);
  switch (op) {
    case ReduceOp::kAvg:  // values whose sum is a multiple of `size`, so that the average is an integer
      return (chosen ? size : 0) + (3 * size <= LargestExact(dtype) ? Mixed(0, index, 3) : 0);
    case ReduceOp::kProd:
      return chosen ? 1 + Mixed(0, index, 3) : 1;
    case ReduceOp::kMin:
    case ReduceOp::kMax:
    case ReduceOp::kBitwiseAnd:
    case ReduceOp::kBitwiseOr:
    case ReduceOp::kBitwiseXor:
      return Mixed(rank, index, 100);
    case ReduceOp::kSum:
    case ReduceOp::kPremulSum:
      break;
  }
  size *= op == ReduceOp::kPremulSum ? 2 : 1;  // factors are at most 2
  return Mixed(rank, index, std::clamp<std::int64_t>(LargestExact(dtype) / size + 1, 2, 8));
}

std::int64_t ReducedTruth(ReduceOp op, int size, std::int64_t index) {
  int truths = 0;
  for (int rank = 0; rank < size; ++rank) truths += ValueOf(op, DType::kBool, rank, size, index) != 0 ? 1 : 0;
  if (op == ReduceOp::kBitwiseXor) return truths % 2;
  const bool all = op == ReduceOp::kProd || op == ReduceOp::kMin || op == ReduceOp::kBitwiseAnd;
  return (all ? truths == size : truths > 0) ? 1 : 0;
}

std::int64_t Reduced(ReduceOp op, DType dtype, int size, std::int64_t index) {
  if (dtype == DType::kBool) return ReducedTruth(op, size, index);
  std::int64_t result = ValueOf(op, dtype, 0, size, index) * FactorOf(op, 0);
  for (int rank = 1; rank < size; ++rank) {
    const std::int64_t value = ValueOf(op, dtype, rank, size, index) * FactorOf(op, rank);
    switch (op) {
      case ReduceOp::kMin:
        result = std::min(result, value);
        break;
      case ReduceOp::kMax:
        result = std::max(result, value);
        break;
      case ReduceOp::kProd:
        result *= value;
        break;
      case ReduceOp::kBitwiseAnd:
        result &= value;
        break;
      case ReduceOp::kBitwiseOr:
        result |= value;
        break;
      case ReduceOp::kBitwiseXor:
        result ^= value;
        break;
      case ReduceOp::kSum:
      case ReduceOp::kAvg:
      case ReduceOp::kPremulSum:
        result += value;
        break;
    }
  }
  return op == ReduceOp::kAvg ? result / size : result;
}

// The bits of an integer in 0 … 2048 as an IEEE half.
std::uint16_t HalfBits(std::uint32_t value) {
  if (value == 0) return 0;
  const int exponent = std::bit_width(value) - 1;
  const std::uint32_t mantissa = (value << (11 - exponent) >> 1) & 0x3FF;
  return static_cast<std::uint16_t>(static_cast<std::uint32_t>(exponent + 15) << 10 | mantissa);
}

template <typename T>
void Store(T value, std::byte* to) {
  std::memcpy(to, &value, sizeof value);
}

// Both parts of a complex number are the integer, because sums go part by part. Products of real numbers stay real.
template <typename Part>
void StorePair(std::int64_t value, ReduceOp op, std::byte* to) {
  Store(static_cast<Part>(value), to);
  Store(static_cast<Part>(op == ReduceOp::kProd ? 0 : value), to + sizeof(Part));
}

void StoreAs(DType dtype, ReduceOp op, std::int64_t value, std::byte* to) {
  switch (dtype) {
    case DType::kF32:
      return Store(static_cast<float>(value), to);
    case DType::kF64:
      return Store(static_cast<double>(value), to);
    case DType::kF16:
      return Store(HalfBits(static_cast<std::uint32_t>(value)), to);
    case DType::kBF16:
      return Store(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(value)) >> 16), to);
    case DType::kI8:
    case DType::kU8:
    case DType::kBool:
    case DType::kF8E4M3FN:
    case DType::kF8E5M2:
      return Store(static_cast<std::uint8_t>(value), to);
    case DType::kI16:
    case DType::kU16:
      return Store(static_cast<std::uint16_t>(value), to);
    case DType::kI32:
    case DType::kU32:
      return Store(static_cast<std::uint32_t>(value), to);
    case DType::kI64:
    case DType::kU64:
      return Store(value, to);
    case DType::kC64:
      return StorePair<float>(value, op, to);
    case DType::kC128:
      return StorePair<double>(value, op, to);
  }
}

}  // namespace

std::int64_t FactorOf(ReduceOp op, int rank) { return op == ReduceOp::kPremulSum ? 1 + rank % 2 : 1; }

absl::Status CheckExact(DType dtype, ReduceOp op, int size) {
  const bool sums = op == ReduceOp::kSum || op == ReduceOp::kAvg || op == ReduceOp::kPremulSum;
  const bool arithmetic = sums && HasOp(dtype, ReduceOp::kAvg);  // sums of bools are exact
  const std::int64_t largest = std::int64_t{size} * (op == ReduceOp::kPremulSum ? 2 : 1);
  if (!arithmetic || largest <= LargestExact(dtype)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("a ", Name(op), " over ", size, " ranks is not exact in ", Name(dtype),
                                                 ": choose a wider --dtype, or --no-check"));
}

Pattern::Pattern(DType dtype, ReduceOp op, int size)
    : dtype_(dtype), op_(op), element_(static_cast<std::size_t>(SizeOf(dtype))), size_(size) {}

const Pattern::Table& Pattern::TableOf(int source) {
  if (const auto found = tables_.find(source); found != tables_.end()) return found->second;
  if (tables_.size() == kMaxTables) tables_.clear();
  Table& table = tables_[source];
  table.resize(kPeriod * element_);
  for (std::int64_t i = 0; i < kPeriod; ++i) {
    const std::int64_t value =
        source == Piece::kReduced ? Reduced(op_, dtype_, size_, i) : ValueOf(op_, dtype_, source, size_, i);
    StoreAs(dtype_, op_, value, table.data() + static_cast<std::size_t>(i) * element_);
  }
  return table;
}

void Pattern::Write(int source, std::int64_t first, std::int64_t count, std::byte* to) {
  const Table& table = TableOf(source);
  for (std::int64_t end = first + count; first < end;) {
    const std::int64_t run = std::min(end - first, kPeriod - first % kPeriod);
    const std::size_t bytes = static_cast<std::size_t>(run) * element_;
    std::memcpy(to, table.data() + static_cast<std::size_t>(first % kPeriod) * element_, bytes);
    to += bytes;
    first += run;
  }
}

std::int64_t Pattern::CountWrong(int source, std::int64_t first, std::int64_t count, const std::byte* data) {
  const Table& table = TableOf(source);
  std::int64_t wrong = 0;
  for (std::int64_t end = first + count; first < end;) {
    const std::int64_t run = std::min(end - first, kPeriod - first % kPeriod);
    const std::size_t bytes = static_cast<std::size_t>(run) * element_;
    const std::byte* const right = table.data() + static_cast<std::size_t>(first % kPeriod) * element_;
    if (std::memcmp(data, right, bytes) != 0) {
      for (std::size_t at = 0; at < bytes; at += element_) {
        wrong += std::memcmp(data + at, right + at, element_) != 0;
      }
    }
    data += bytes;
    first += run;
  }
  return wrong;
}

}  // namespace tutti::cli
