#include "kernels/reduce_integer.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <type_traits>

namespace tutti::kernels {
namespace {

constexpr std::size_t kBlock = 256;  // elements: the accumulator stays in the first-level cache

template <ReduceOp kOp, typename T>
T Combine(T a, T b) {
  // Unsigned arithmetic wraps around. It is 64 bits wide, because narrow operands would be promoted to (signed) int.
  using Wide = std::uint64_t;
  if constexpr (kOp == ReduceOp::kMin) {
    return std::min(a, b);
  } else if constexpr (kOp == ReduceOp::kMax) {
    return std::max(a, b);
  } else if constexpr (kOp == ReduceOp::kProd) {
    return static_cast<T>(static_cast<Wide>(a) * static_cast<Wide>(b));
  } else {
    return static_cast<T>(static_cast<Wide>(a) + static_cast<Wide>(b));
  }
}

template <typename T, ReduceOp kOp>
void ReduceBlocks(std::int32_t divisor, absl::Span<void* const> dsts, absl::Span<const void* const> srcs,
                  std::size_t count) {
  T result[kBlock];
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    const std::size_t size = std::min(kBlock, count - begin);
    std::memcpy(result, static_cast<const T*>(srcs[0]) + begin, size * sizeof(T));
    for (const void* operand : srcs.subspan(1)) {
      const T* values = static_cast<const T*>(operand) + begin;
      for (std::size_t i = 0; i < size; ++i) result[i] = Combine<kOp>(result[i], values[i]);
    }
    if constexpr (kOp == ReduceOp::kAvg) {
      for (std::size_t i = 0; i < size; ++i) result[i] = static_cast<T>(std::int64_t{result[i]} / divisor);
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
  }
}

}  // namespace

void ReduceInteger(DType dtype, ReduceOp op, std::int32_t divisor, absl::Span<void* const> dsts,
                   absl::Span<const void* const> srcs, std::int64_t count) {
  const auto size = static_cast<std::size_t>(count);
  if (dtype == DType::kI8) return ReduceType<std::int8_t>(op, divisor, dsts, srcs, size);
  if (dtype == DType::kU8) return ReduceType<std::uint8_t>(op, divisor, dsts, srcs, size);
  if (dtype == DType::kI32) return ReduceType<std::int32_t>(op, divisor, dsts, srcs, size);
  ReduceType<std::int64_t>(op, divisor, dsts, srcs, size);
}

}  // namespace tutti::kernels
