// Reduce for the floating dtypes: Highway, chosen for the processor at run time.
#ifndef TUTTI_KERNELS_REDUCE_FLOATING_H_
#define TUTTI_KERNELS_REDUCE_FLOATING_H_

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/reduce.h"
#include "tutti/dtype.h"

namespace tutti::kernels {

// Reduces like Reduce; `dtype` is f32, f64, f16 or bf16.
void ReduceFloating(DType dtype, ReduceOp op, std::int32_t divisor, absl::Span<void* const> dsts,
                    absl::Span<const void* const> srcs, std::int64_t count, Stores stores);

}  // namespace tutti::kernels

#endif  // TUTTI_KERNELS_REDUCE_FLOATING_H_
