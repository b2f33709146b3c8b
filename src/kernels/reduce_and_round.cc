#include <algorithm>
#include <array>

#include "kernels/reduce.h"

namespace tutti::kernels {
namespace {

// The number of fp32 results that wait to be rounded: they stay in the first-level cache.
constexpr std::int64_t kBlock = 2048;
// The most operands that are reduced at a time: their addresses lie on the stack.
constexpr std::size_t kGroup = 64;

}  // namespace

void ReduceAndRound(DType dst_type, ReduceOp op, std::int32_t divisor, absl::Span<void* const> dsts,
                    absl::Span<const void* const> srcs, std::int64_t count, Stores stores) {
  alignas(64) std::array<float, kBlock> block;
  void* const result = block.data();
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    const std::int64_t length = std::min(kBlock, count - begin);
    const ReduceOp partial = op == ReduceOp::kAvg ? ReduceOp::kSum : op;
    std::array<const void*, kGroup> operands;
    std::size_t used = 0;
    while (used < srcs.size()) {
      std::size_t filled = 0;
      if (used > 0) operands[filled++] = result;
      while (filled < kGroup && used < srcs.size())
        operands[filled++] = static_cast<const float*>(srcs[used++]) + begin;
      Reduce(DType::kF32, used == srcs.size() ? op : partial, divisor, {&result, 1}, {operands.data(), filled}, length,
             Stores::kCached);
    }
    for (void* dst : dsts) {
      Convert(dst_type, static_cast<std::byte*>(dst) + begin * SizeOf(dst_type), DType::kF32, result, length, stores);
    }
  }
}

}  // namespace tutti::kernels
