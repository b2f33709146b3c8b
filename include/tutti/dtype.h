// Element types and reduction operators shared by every layer.
#ifndef TUTTI_DTYPE_H_
#define TUTTI_DTYPE_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tutti {

// Position of a process in a world or group: 0 … size-1.
using Rank = int;
// In the place of the sender's rank: a receive takes the message of any rank. The value is not -1, which stands for no
// rank in many programs and is refused.
inline constexpr Rank kAnySource = -2;

// The type of one element. 16-bit floating types are accumulated in fp32 and rounded once. A bool is one byte, which is
// true unless it is 0; what is computed of bools is 0 or 1. A complex number is a pair, real part first. The 8-bit
// floating types can be moved, not computed with. The enumerators' numbers travel between ranks and into checkpoints: a
// new type is appended.
enum class DType : std::uint8_t {
  kF32,
  kF64,
  kF16,
  kBF16,
  kI8,
  kU8,
  kI32,
  kI64,
  kBool,
  kI16,
  kU16,
  kU32,
  kU64,
  kC64,       // two f32
  kC128,      // two f64
  kF8E4M3FN,  // 4 bits of exponent, 3 of mantissa; no infinities
  kF8E5M2,    // 5 bits of exponent, 2 of mantissa
};

// How elements of several ranks become one; HasOp says for which types. kAvg divides the sum by the number of ranks
// (integers: truncating division). kMin and kMax return NaN when any operand is NaN. The sum, the maximum and the
// bitwise or of bools are their logical or; the product, the minimum and the bitwise and are their logical and. The
// enumerators' numbers travel between ranks: a new operator is appended.
enum class ReduceOp : std::uint8_t {
  kSum,
  kAvg,
  kMin,
  kMax,
  kProd,
  kBitwiseAnd,
  kBitwiseOr,
  kBitwiseXor,
  kPremulSum,  // the sum of every rank's elements times that rank's factor (CallOptions::factor)
};

inline constexpr std::array<DType, 17> kAllDTypes = {
    DType::kF32, DType::kF64, DType::kF16,  DType::kBF16,     DType::kI8,    DType::kU8,
    DType::kI32, DType::kI64, DType::kBool, DType::kI16,      DType::kU16,   DType::kU32,
    DType::kU64, DType::kC64, DType::kC128, DType::kF8E4M3FN, DType::kF8E5M2};
inline constexpr std::array<ReduceOp, 9> kAllReduceOps = {
    ReduceOp::kSum,        ReduceOp::kAvg,       ReduceOp::kMin,        ReduceOp::kMax,      ReduceOp::kProd,
    ReduceOp::kBitwiseAnd, ReduceOp::kBitwiseOr, ReduceOp::kBitwiseXor, ReduceOp::kPremulSum};

// The coefficient of an operand in a linear combination, which adds operand · factor / divisor. Two numbers, because
// one alone cannot express 1/3 exactly.
struct Coefficient {
  double factor = 1;
  double divisor = 1;
  double value() const { return factor / divisor; }
  bool operator==(const Coefficient&) const = default;
};

// Bytes of one element; 0 of a value that is no DType.
constexpr std::int64_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kC128:
      return 16;
    case DType::kF64:
    case DType::kI64:
    case DType::kU64:
    case DType::kC64:
      return 8;
    case DType::kF32:
    case DType::kI32:
    case DType::kU32:
      return 4;
    case DType::kF16:
    case DType::kBF16:
    case DType::kI16:
    case DType::kU16:
      return 2;
    case DType::kI8:
    case DType::kU8:
    case DType::kBool:
    case DType::kF8E4M3FN:
    case DType::kF8E5M2:
      return 1;
  }
  return 0;
}

// Whether `dtype` is a real floating type that can be computed with.
constexpr bool IsFloating(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF64 || dtype == DType::kF16 || dtype == DType::kBF16;
}

constexpr bool IsComplex(DType dtype) { return dtype == DType::kC64 || dtype == DType::kC128; }

// Whether `dtype` is an integer type, which bool is not.
constexpr bool IsInteger(DType dtype) {
  switch (dtype) {
    case DType::kI8:
    case DType::kU8:
    case DType::kI16:
    case DType::kU16:
    case DType::kI32:
    case DType::kU32:
    case DType::kI64:
    case DType::kU64:
      return true;
    default:
      return false;
  }
}

// The type of the two parts of a complex number; `dtype` itself when it is not complex.
constexpr DType PartOf(DType dtype) {
  if (dtype == DType::kC64) return DType::kF32;
  return dtype == DType::kC128 ? DType::kF64 : dtype;
}

// The type in which sums of `dtype` are accumulated: fp32 for the 16-bit floating types, otherwise `dtype` itself.
constexpr DType AccumulatorOf(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16 ? DType::kF32 : dtype;
}

// Whether elements of `dtype` can be combined by `op`.
constexpr bool HasOp(DType dtype, ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kProd:
      return IsFloating(dtype) || IsInteger(dtype) || IsComplex(dtype) || dtype == DType::kBool;
    case ReduceOp::kAvg:
      return IsFloating(dtype) || IsInteger(dtype) || IsComplex(dtype);
    case ReduceOp::kMin:
    case ReduceOp::kMax:
      return IsFloating(dtype) || IsInteger(dtype) || dtype == DType::kBool;
    case ReduceOp::kBitwiseAnd:
    case ReduceOp::kBitwiseOr:
    case ReduceOp::kBitwiseXor:
      return IsInteger(dtype) || dtype == DType::kBool;
    case ReduceOp::kPremulSum:
      return IsFloating(dtype) || IsComplex(dtype);
  }
  return false;
}

// Whether a copy may convert elements of `from` into elements of `to`: between equal types, and between real numbers.
constexpr bool Converts(DType from, DType to) {
  const auto real = [](DType dtype) { return IsFloating(dtype) || IsInteger(dtype); };
  return from == to || (real(from) && real(to));
}

// OK when HasOp; otherwise InvalidArgument that names the type and the operator and says what would be right.
absl::Status CheckOp(DType dtype, ReduceOp op);

// "f32", "bf16", … and "sum", "avg", …: the names used in plans, the command line and JSON. "?" of other values.
absl::string_view Name(DType dtype);
absl::string_view Name(ReduceOp op);

// Inverse of Name; InvalidArgument lists the valid names.
absl::StatusOr<DType> ParseDType(absl::string_view name);
absl::StatusOr<ReduceOp> ParseReduceOp(absl::string_view name);

}  // namespace tutti

#endif  // TUTTI_DTYPE_H_
