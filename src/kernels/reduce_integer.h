// Reduce for the integer dtypes: plain loops over blocks of fixed size, which compilers vectorise.
#ifndef TUTTI_KERNELS_REDUCE_INTEGER_H_
#define TUTTI_KERNELS_REDUCE_INTEGER_H_

#include <cstdint>

#include "absl/types/span.h"
#include "tutti/dtype.h"

namespace tutti::kernels {

// Reduces like Reduce; `dtype` is an integer type. Sums and products wrap around.
void ReduceInteger(DType dtype, ReduceOp op, std::int32_t divisor, absl::Span<void* const> dsts,
                   absl::Span<const void* const> srcs, std::int64_t count);

}  // namespace tutti::kernels

#endif  // TUTTI_KERNELS_REDUCE_INTEGER_H_
