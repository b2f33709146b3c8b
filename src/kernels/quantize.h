// Encodes and decodes blocks of fp32 values as codes of 8 or 4 bits: the inner loops of the codecs, equal bit for bit
// to the element functions of grid.h and minmax_levels.h. Thread-safe, allocate nothing.
#ifndef TUTTI_KERNELS_QUANTIZE_H_
#define TUTTI_KERNELS_QUANTIZE_H_

#include <cstdint>
#include <optional>

#include "absl/types/span.h"
#include "kernels/grid.h"
#include "kernels/minmax_levels.h"
#include "kernels/random.h"

namespace tutti::kernels {

// Sets codes[i] to EncodeToGrid(grid, values[i]), or with `random` to EncodeToGrid(grid, values[i], RandomWord(*random,
// i)). `codes` has values.size() bytes.
void EncodeBlock(const Grid& grid, absl::Span<const float> values, const std::optional<RandomStream>& random,
                 std::uint8_t* codes);
// Sets values[i] to DecodeFromGrid(levels, codes[i]), or adds it; `codes` has values.size() bytes.
void DecodeBlock(const GridValues& levels, const std::uint8_t* codes, bool accumulate, absl::Span<float> values);

// EncodeBlock and DecodeBlock with two codes to a byte, the first in its lower half: (values.size() + 1) / 2 bytes. The
// grid has codes up to 15.
void EncodeNibbles(const Grid& grid, absl::Span<const float> values, const std::optional<RandomStream>& random,
                   std::uint8_t* bytes);
void DecodeNibbles(const GridValues& levels, const std::uint8_t* bytes, bool accumulate, absl::Span<float> values);

// EncodeBlock and DecodeBlock with EncodeMinMaxUint8 and DecodeMinMaxUint8.
void EncodeBlock(const MinMaxLevels& levels, absl::Span<const float> values, std::uint8_t* codes);
void DecodeBlock(const MinMaxLevels& levels, const std::uint8_t* codes, bool accumulate, absl::Span<float> values);

}  // namespace tutti::kernels

#endif  // TUTTI_KERNELS_QUANTIZE_H_
