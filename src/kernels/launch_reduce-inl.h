// LaunchReduce, LaunchReduceAndRound and LaunchDivide.
#ifndef TUTTI_KERNELS_LAUNCH_REDUCE_INL_H_
#define TUTTI_KERNELS_LAUNCH_REDUCE_INL_H_

#include "kernels/launch.h"
#include "kernels/reduce_octets.h"

namespace tutti::kernels {

template <class From, class To, class Launcher>
absl::Status LaunchFloating(const Launcher& launcher, ReduceOp op, std::int32_t divisor, const OperandList& list,
                            std::int64_t count) {
  const bool divides = op == ReduceOp::kAvg && divisor != 1;
  return launcher.EnqueueOctets(
      ReduceFloatingOctets<From, To>{list, op, divides, Quotients<typename From::Lane>(divides ? divisor : 1)}, count);
}

template <class Launcher>
absl::Status LaunchFloatingType(const Launcher& launcher, DType dtype, ReduceOp op, std::int32_t divisor,
                                const OperandList& list, std::int64_t count) {
  using F32 = NativeElement<float>;
  using F64 = NativeElement<double>;
  if (dtype == DType::kF32) return LaunchFloating<F32, F32>(launcher, op, divisor, list, count);
  if (dtype == DType::kF64) return LaunchFloating<F64, F64>(launcher, op, divisor, list, count);
  if (dtype == DType::kF16) return LaunchFloating<Float16Element, Float16Element>(launcher, op, divisor, list, count);
  return LaunchFloating<BFloat16Element, BFloat16Element>(launcher, op, divisor, list, count);
}

template <class Launcher>
absl::Status LaunchComplex(const Launcher& launcher, DType dtype, ReduceOp op, std::int32_t divisor,
                           const OperandList& list, std::int64_t count) {
  if (op != ReduceOp::kProd) return LaunchFloatingType(launcher, PartOf(dtype), op, divisor, list, 2 * count);
  if (dtype == DType::kC64) return launcher.EnqueueOctets(MultiplyComplexOctets<float>{list}, count);
  return launcher.EnqueueOctets(MultiplyComplexOctets<double>{list}, count);
}

template <typename T, class Launcher>
absl::Status LaunchInteger(const Launcher& launcher, ReduceOp op, std::int32_t divisor, const OperandList& list,
                           std::int64_t count) {
  return launcher.EnqueueOctets(ReduceIntegerOctets<T>{list, op, divisor}, count);
}

template <class Launcher>
absl::Status LaunchIntegerType(const Launcher& launcher, DType dtype, ReduceOp op, std::int32_t divisor,
                               const OperandList& list, std::int64_t count) {
  if (op == ReduceOp::kBitwiseAnd || op == ReduceOp::kBitwiseOr || op == ReduceOp::kBitwiseXor) {
    return launcher.EnqueueOctets(ReduceBitOctets<false>{list, op}, count * SizeOf(dtype));
  }
  switch (dtype) {
    case DType::kI8:
      return LaunchInteger<std::int8_t>(launcher, op, divisor, list, count);
    case DType::kU8:
      return LaunchInteger<std::uint8_t>(launcher, op, divisor, list, count);
    case DType::kI16:
      return LaunchInteger<std::int16_t>(launcher, op, divisor, list, count);
    case DType::kU16:
      return LaunchInteger<std::uint16_t>(launcher, op, divisor, list, count);
    case DType::kI32:
      return LaunchInteger<std::int32_t>(launcher, op, divisor, list, count);
    case DType::kU32:
      return LaunchInteger<std::uint32_t>(launcher, op, divisor, list, count);
    case DType::kI64:
      return LaunchInteger<std::int64_t>(launcher, op, divisor, list, count);
    default:
      return LaunchInteger<std::uint64_t>(launcher, op, divisor, list, count);
  }
}

template <class Launcher>
absl::Status LaunchReduce(Stream stream, DType dtype, ReduceOp op, std::int32_t divisor, absl::Span<void* const> dsts,
                          absl::Span<const void* const> srcs, std::int64_t count) {
  OperandList list;
  if (absl::Status status = ListOperands(dsts, srcs, list); !status.ok()) return status;
  const Launcher launcher(stream);
  if (IsComplex(dtype)) return LaunchComplex(launcher, dtype, op, divisor, list, count);
  if (IsFloating(dtype)) return LaunchFloatingType(launcher, dtype, op, divisor, list, count);
  if (dtype == DType::kBool) return launcher.EnqueueOctets(ReduceBitOctets<true>{list, OnTruths(op)}, count);
  return LaunchIntegerType(launcher, dtype, op, divisor, list, count);
}

template <class Launcher>
absl::Status LaunchReduceAndRound(Stream stream, DType dst_type, ReduceOp op, std::int32_t divisor,
                                  absl::Span<void* const> dsts, absl::Span<const void* const> srcs,
                                  std::int64_t count) {
  OperandList list;
  if (absl::Status status = ListOperands(dsts, srcs, list); !status.ok()) return status;
  const Launcher launcher(stream);
  using F32 = NativeElement<float>;
  if (dst_type == DType::kF16) return LaunchFloating<F32, Float16Element>(launcher, op, divisor, list, count);
  return LaunchFloating<F32, BFloat16Element>(launcher, op, divisor, list, count);
}

template <class Launcher>
absl::Status LaunchDivide(Stream stream, DType dtype, void* dst, const void* src, std::int32_t divisor,
                          std::int64_t count) {
  return LaunchReduce<Launcher>(stream, dtype, ReduceOp::kAvg, divisor, {&dst, 1}, {&src, 1}, count);
}

}  // namespace tutti::kernels

#endif  // TUTTI_KERNELS_LAUNCH_REDUCE_INL_H_
