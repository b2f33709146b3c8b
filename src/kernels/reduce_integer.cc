#include "kernels/reduce_integer.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "kernels/integer_element.h"
#include "kernels/reduce_bits.h"

namespace tutti::kernels {
namespace {

constexpr std::size_t kBlock = 256;  // elements: the accumulator stays in the first-level cache

template <typename T, ReduceOp kOp>
void ReduceBlocks(std::int32_t divisor, absl::Span<void* const> dsts, absl::Span<const void* const> srcs,
                  std::size_t count) {
  T result[kBlock];
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    const std::size_t size = std::min(kBlock, count - begin);
    std::memcpy(result, static_cast<const T*>(srcs[0]) + begin, size * sizeof(T));
    for (const void* operand : srcs.subspan(1)) {
      const T* values = static_cast<const T*>(operand) + begin;
      for (std::size_t i = 0; i < size; ++i) result[i] = CombineIntegers<kOp>(result[i], values[i]);
    }
    if constexpr (kOp == ReduceOp::kAvg) {
      for (std::size_t i = 0; i < size; ++i) result[i] = Quotient(result[i], divisor);
    }
    for (void* dst : dsts) std::memcpy(static_cast<T*>(dst) + begin, result, size * sizeof(T));
  }
}

template <typename T>
void ReduceType(ReduceOp op, std::int32_t divisor, absl::Span<void* const> dsts, absl::Span<const void* const> srcs,
                std::size_t count) {
  switch (op) {
    case ReduceOp::kSum:
      return ReduceBlocks<T, ReduceOp::kSum>(divisor, dsts, srcs, count);
    case ReduceOp::kAvg:
      return ReduceBlocks<T, ReduceOp::kAvg>(divisor, dsts, srcs, count);
    case ReduceOp::kMin:
      return ReduceBlocks<T, ReduceOp::kMin>(divisor, dsts, srcs, count);
    case ReduceOp::kMax:
      return ReduceBlocks<T, ReduceOp::kMax>(divisor, dsts, srcs, count);
    case ReduceOp::kProd:
      return ReduceBlocks<T, ReduceOp::kProd>(divisor, dsts, srcs, count);
    case ReduceOp::kBitwiseAnd:
    case ReduceOp::kBitwiseOr:
    case ReduceOp::kBitwiseXor:
      return ReduceBits(op, dsts, srcs, static_cast<std::int64_t>(count * sizeof(T)));
    case ReduceOp::kPremulSum:
      return;  // refused by the contract of Reduce
  }
}

}  // namespace

void ReduceInteger(DType dtype, ReduceOp op, std::int32_t divisor, absl::Span<void* const> dsts,
                   absl::Span<const void* const> srcs, std::int64_t count) {
  const auto size = static_cast<std::size_t>(count);
  switch (dtype) {
    case DType::kI8:
      return ReduceType<std::int8_t>(op, divisor, dsts, srcs, size);
    case DType::kU8:
      return ReduceType<std::uint8_t>(op, divisor, dsts, srcs, size);
    case DType::kI16:
      return ReduceType<std::int16_t>(op, divisor, dsts, srcs, size);
    case DType::kU16:
      return ReduceType<std::uint16_t>(op, divisor, dsts, srcs, size);
    case DType::kI32:
      return ReduceType<std::int32_t>(op, divisor, dsts, srcs, size);
    case DType::kU32:
      return ReduceType<std::uint32_t>(op, divisor, dsts, srcs, size);
    case DType::kI64:
      return ReduceType<std::int64_t>(op, divisor, dsts, srcs, size);
    case DType::kU64:
      return ReduceType<std::uint64_t>(op, divisor, dsts, srcs, size);
    default:
      return;  // refused by the contract of Reduce
  }
}

}  // namespace tutti::kernels
