#include "transports/nccl/types.h"

#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace tutti::nccl {
namespace {

// The type with which NCCL computes; none for those that it can only move.
std::optional<DataType> ComputedType(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return DataType::kFloat32;
    case DType::kF64:
      return DataType::kFloat64;
    case DType::kF16:
      return DataType::kFloat16;
    case DType::kBF16:
      return DataType::kBfloat16;
    case DType::kI8:
      return DataType::kInt8;
    case DType::kU8:
      return DataType::kUint8;
    case DType::kI32:
      return DataType::kInt32;
    case DType::kU32:
      return DataType::kUint32;
    case DType::kI64:
      return DataType::kInt64;
    case DType::kU64:
      return DataType::kUint64;
    default:
      return std::nullopt;
  }
}

absl::Status CheckReduction(DType dtype, ReduceOp op) {
  if (!ComputedType(dtype)) {
    return absl::UnimplementedError(absl::StrCat("NCCL does not compute with ", Name(dtype),
                                                 "; with f32, f64, f16, bf16, i8, u8, i32, u32, i64 and u64 it does"));
  }
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
    case ReduceOp::kProd:
      return absl::OkStatus();
    case ReduceOp::kMin:
    case ReduceOp::kMax:
      if (!IsFloating(dtype)) return absl::OkStatus();
      return absl::UnimplementedError(
          absl::StrCat(Name(op), " of ", Name(dtype), " by NCCL ignores NaN, where Tutti promises that NaN stays"));
    case ReduceOp::kPremulSum:
      if (dtype == DType::kF32 || dtype == DType::kF64) return absl::OkStatus();
      return absl::UnimplementedError(absl::StrCat("NCCL would round the factor of premul_sum to ", Name(dtype),
                                                   "; multiply the elements before a sum"));
    default:
      return absl::UnimplementedError(absl::StrCat("NCCL has no operator ", Name(op)));
  }
}

}  // namespace

absl::Status CheckSupported(Collective collective, DType dtype, ReduceOp op) {
  if (collective == Collective::kBarrier || collective == Collective::kAllToAllV) {
    return absl::UnimplementedError(
        absl::StrCat("NCCL has no ", Name(collective), "; all_reduce one element, or send and receive in one group"));
  }
  if (!Reduces(collective)) return absl::OkStatus();
  if (absl::Status has_op = CheckOp(dtype, op); !has_op.ok()) return has_op;
  return CheckReduction(dtype, op);
}

Elements ElementsOf(DType dtype) {
  if (const std::optional<DataType> type = ComputedType(dtype)) return {*type, 1};
  return {DataType::kUint8, SizeOf(dtype)};
}

RedOp OperatorOf(ReduceOp op) {
  switch (op) {
    case ReduceOp::kAvg:
      return RedOp::kAvg;
    case ReduceOp::kProd:
      return RedOp::kProd;
    case ReduceOp::kMin:
      return RedOp::kMin;
    case ReduceOp::kMax:
      return RedOp::kMax;
    default:
      return RedOp::kSum;
  }
}

}  // namespace tutti::nccl
