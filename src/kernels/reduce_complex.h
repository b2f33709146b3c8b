// Products of complex numbers: Highway, chosen for the processor at run time.
#ifndef TUTTI_KERNELS_REDUCE_COMPLEX_H_
#define TUTTI_KERNELS_REDUCE_COMPLEX_H_

#include <cstdint>

#include "absl/types/span.h"
#include "tutti/dtype.h"

namespace tutti::kernels {

// Reduces like Reduce with kProd; `dtype` is c64 or c128.
void MultiplyComplex(DType dtype, absl::Span<void* const> dsts, absl::Span<const void* const> srcs, std::int64_t count);

}  // namespace tutti::kernels

#endif  // TUTTI_KERNELS_REDUCE_COMPLEX_H_
