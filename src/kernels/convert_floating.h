// Conversions between f32, f16 and bf16, and streaming copies, by Highway for the processor at run time.
#ifndef TUTTI_KERNELS_CONVERT_FLOATING_H_
#define TUTTI_KERNELS_CONVERT_FLOATING_H_

#include <cstdint>

#include "kernels/reduce.h"
#include "tutti/dtype.h"

namespace tutti::kernels {

// Whether ConvertFloating converts between this pair of types.
constexpr bool IsFloatingConversion(DType dst_type, DType src_type) {
  return AccumulatorOf(dst_type) == DType::kF32 && AccumulatorOf(src_type) == DType::kF32 && dst_type != src_type;
}

// Converts like Convert; requires IsFloatingConversion(dst_type, src_type).
void ConvertFloating(DType dst_type, void* dst, DType src_type, const void* src, std::int64_t count, Stores stores);

// Copies `count` elements of `dtype` past the cache.
void CopyStreaming(DType dtype, void* dst, const void* src, std::int64_t count);

}  // namespace tutti::kernels

#endif  // TUTTI_KERNELS_CONVERT_FLOATING_H_
