// Encodes and decodes blocks of fp32 values as bytes: the inner loops of the 8-bit codecs, equal bit for bit to the
// element functions of uint8_grid.h and minmax_levels.h. Thread-safe, allocate nothing.
#ifndef TUTTI_KERNELS_QUANTIZE_H_
#define TUTTI_KERNELS_QUANTIZE_H_

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/minmax_levels.h"
#include "kernels/uint8_grid.h"

namespace tutti::kernels {

// codes[i] = EncodeUint8(grid, values[i]); `codes` has values.size() bytes.
void EncodeBlock(const Uint8Grid& grid, absl::Span<const float> values, std::uint8_t* codes);
// values[i] = DecodeUint8(levels, codes[i]), or += when `accumulate`; `codes` has values.size() bytes.
void DecodeBlock(const Uint8Values& levels, const std::uint8_t* codes, bool accumulate, absl::Span<float> values);

// The same for EncodeMinMaxUint8 and DecodeMinMaxUint8.
void EncodeBlock(const MinMaxLevels& levels, absl::Span<const float> values, std::uint8_t* codes);
void DecodeBlock(const MinMaxLevels& levels, const std::uint8_t* codes, bool accumulate, absl::Span<float> values);

}  // namespace tutti::kernels

#endif  // TUTTI_KERNELS_QUANTIZE_H_
