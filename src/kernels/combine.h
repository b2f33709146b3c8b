// Linear combinations in host memory: the inner loop under Combine steps. SIMD with run-time dispatch (Highway).
#ifndef TUTTI_KERNELS_COMBINE_H_
#define TUTTI_KERNELS_COMBINE_H_

#include <cstdint>

#include "absl/types/span.h"
#include "tutti/dtype.h"

namespace tutti::kernels {

// What becomes of results that are no finite numbers: they stay (kAll), or become 0 (kFinite).
enum class Results : std::uint8_t { kAll, kFinite };

// dst[i] = srcs[0][i] · coefficients[0] + srcs[1][i] · coefficients[1] + … for i < count, from left to right. Products,
// quotients and sums are rounded one by one, in f64 for f64 and in f32 for the other floating dtypes; 16-bit results
// are rounded once more. `dst` may be one of the srcs (exact alias). Thread-safe, allocates nothing.
void Combine(DType dtype, void* dst, absl::Span<const void* const> srcs, const Coefficient* coefficients,
             std::int64_t count, Results results);

}  // namespace tutti::kernels

#endif  // TUTTI_KERNELS_COMBINE_H_
