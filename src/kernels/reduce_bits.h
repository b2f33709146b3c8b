// The bitwise operators of the integer dtypes, and all operators of bool: Highway, chosen for the processor at run
// time.
#ifndef TUTTI_KERNELS_REDUCE_BITS_H_
#define TUTTI_KERNELS_REDUCE_BITS_H_

#include <cstdint>

#include "absl/types/span.h"
#include "tutti/dtype.h"

namespace tutti::kernels {

// Reduces `bytes` bytes of each operand like Reduce; `op` is bitwise, so the type of the elements does not matter.
void ReduceBits(ReduceOp op, absl::Span<void* const> dsts, absl::Span<const void* const> srcs, std::int64_t bytes);

// The operator on bits that computes `op` of truths.
constexpr ReduceOp OnTruths(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kMax:
      return ReduceOp::kBitwiseOr;
    case ReduceOp::kProd:
    case ReduceOp::kMin:
      return ReduceOp::kBitwiseAnd;
    default:
      return op;
  }
}

// Reduces bools like Reduce: a byte is true unless it is 0, and results are 0 or 1.
void ReduceTruths(ReduceOp op, absl::Span<void* const> dsts, absl::Span<const void* const> srcs, std::int64_t count);

}  // namespace tutti::kernels

#endif  // TUTTI_KERNELS_REDUCE_BITS_H_
