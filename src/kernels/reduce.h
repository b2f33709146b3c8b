// Arithmetic on host memory: the inner loops under Reduce, Copy and Scale steps. SIMD with run-time dispatch (Highway).
#ifndef TUTTI_KERNELS_REDUCE_H_
#define TUTTI_KERNELS_REDUCE_H_

#include <cstdint>

#include "absl/types/span.h"
#include "tutti/dtype.h"

namespace tutti::kernels {

// Whether results bypass the cache: worth it when they are larger than the cache and nobody here reads them soon.
enum class Stores : std::uint8_t { kCached, kStreaming };

// Every dst[i] = op(srcs[0][i], srcs[1][i], …) for i < count, combined strictly left to right; kAvg divides the sum by
// `divisor` (true division; integers truncate). 16-bit floating types accumulate in fp32 and round once (nearest even).
// Complex numbers are multiplied as (a + bi)(c + di) = (ac - bd) + (ad + bc)i, every operation rounded by itself.
// HasOp(dtype, op) must hold, and op is not kPremulSum: Multiply comes before the sum. A dst may be one of the srcs
// (exact alias); partial overlap is undefined. 1 ≤ srcs.size(), 1 ≤ dsts.size(). Pointers need only the alignment of
// their element (of its parts, where it is complex), those to floating types not even that. Thread-safe, allocates
// nothing.
void Reduce(DType dtype, ReduceOp op, std::int32_t divisor, absl::Span<void* const> dsts,
            absl::Span<const void* const> srcs, std::int64_t count, Stores stores);

// Reduces fp32 sources and rounds the result into 16-bit destinations: the last step of a sum whose partials travel in
// fp32. Otherwise like Reduce.
void ReduceAndRound(DType dst_type, ReduceOp op, std::int32_t divisor, absl::Span<void* const> dsts,
                    absl::Span<const void* const> srcs, std::int64_t count, Stores stores);

// dst[i] = src[i] converted (nearest even; float to narrower integer saturates); a plain copy when the types are equal.
// Converts(src_type, dst_type) must hold.
void Convert(DType dst_type, void* dst, DType src_type, const void* src, std::int64_t count, Stores stores);

// dst[i] = src[i] / divisor (floats: true division; integers truncate). dst may be src.
void Divide(DType dtype, void* dst, const void* src, std::int32_t divisor, std::int64_t count);

// dst[i] = src[i] · factor, for floating and complex types. The factor is rounded to the type of the arithmetic: f64
// for f64 and c128, otherwise f32, from which 16-bit products are rounded. dst may be src.
void Multiply(DType dtype, void* dst, const void* src, double factor, std::int64_t count);

}  // namespace tutti::kernels

#endif  // TUTTI_KERNELS_REDUCE_H_
