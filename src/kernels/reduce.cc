#include "kernels/reduce.h"

#include "kernels/combine.h"
#include "kernels/reduce_bits.h"
#include "kernels/reduce_complex.h"
#include "kernels/reduce_floating.h"
#include "kernels/reduce_integer.h"

namespace tutti::kernels {

void Reduce(DType dtype, ReduceOp op, std::int32_t divisor, absl::Span<void* const> dsts,
            absl::Span<const void* const> srcs, std::int64_t count, Stores stores) {
  if (IsComplex(dtype)) {
    if (op == ReduceOp::kProd) return MultiplyComplex(dtype, dsts, srcs, count);
    ReduceFloating(PartOf(dtype), op, divisor, dsts, srcs, 2 * count, stores);
  } else if (IsFloating(dtype)) {
    ReduceFloating(dtype, op, divisor, dsts, srcs, count, stores);
  } else if (dtype == DType::kBool) {
    ReduceTruths(op, dsts, srcs, count);
  } else {
    ReduceInteger(dtype, op, divisor, dsts, srcs, count);
  }
}

void Divide(DType dtype, void* dst, const void* src, std::int32_t divisor, std::int64_t count) {
  Reduce(dtype, ReduceOp::kAvg, divisor, {&dst, 1}, {&src, 1}, count, Stores::kCached);
}

void Multiply(DType dtype, void* dst, const void* src, double factor, std::int64_t count) {
  const Coefficient coefficient = {.factor = factor};
  Combine(PartOf(dtype), dst, {&src, 1}, &coefficient, IsComplex(dtype) ? 2 * count : count, Results::kAll);
}

}  // namespace tutti::kernels
