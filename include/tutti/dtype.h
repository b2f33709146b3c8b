// Element types and reduction operators shared by every layer.
#ifndef TUTTI_DTYPE_H_
#define TUTTI_DTYPE_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tutti {

// Position of a process in a world or group: 0 … size-1.
using Rank = int;

// The type of one element. 16-bit types are accumulated in fp32 and rounded once.
enum class DType : std::uint8_t { kF32, kF64, kF16, kBF16, kI8, kU8, kI32, kI64 };

// How elements of several ranks become one. kAvg divides the sum by the number of ranks
// (integers: truncating division). kMin and kMax return NaN when any operand is NaN.
enum class ReduceOp : std::uint8_t { kSum, kAvg, kMin, kMax, kProd };

inline constexpr std::array<DType, 8> kAllDTypes = {DType::kF32, DType::kF64, DType::kF16, DType::kBF16,
                                                    DType::kI8,  DType::kU8,  DType::kI32, DType::kI64};
inline constexpr std::array<ReduceOp, 5> kAllReduceOps = {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMin,
                                                          ReduceOp::kMax, ReduceOp::kProd};

// The coefficient of an operand in a linear combination, which adds operand · factor / divisor. Two numbers express a
// third exactly.
struct Coefficient {
  double factor = 1;
  double divisor = 1;
  double value() const { return factor / divisor; }
  bool operator==(const Coefficient&) const = default;
};

// Bytes of one element; 0 of a value that is no DType.
constexpr std::int64_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kF64:
    case DType::kI64:
      return 8;
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kF16:
    case DType::kBF16:
      return 2;
    case DType::kI8:
    case DType::kU8:
      return 1;
  }
  return 0;
}

constexpr bool IsFloating(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF64 || dtype == DType::kF16 || dtype == DType::kBF16;
}

// The type in which sums of `dtype` are accumulated: fp32 for the 16-bit types, itself otherwise.
constexpr DType AccumulatorOf(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16 ? DType::kF32 : dtype;
}

// "f32", "bf16", … and "sum", "avg", …: the names used in plans, the command line and JSON. "?" of other values.
absl::string_view Name(DType dtype);
absl::string_view Name(ReduceOp op);

// Inverse of Name; InvalidArgument lists the valid names.
absl::StatusOr<DType> ParseDType(absl::string_view name);
absl::StatusOr<ReduceOp> ParseReduceOp(absl::string_view name);

}  // namespace tutti

#endif  // TUTTI_DTYPE_H_
