// Rounding of fp32 to the 16-bit floating types at random: to the value below or above, the nearer the more likely, so
// that the result is right on average. NaN and Inf stay as they are; the value above the largest of the type is
// infinity.
#ifndef TUTTI_KERNELS_STOCHASTIC_CAST_H_
#define TUTTI_KERNELS_STOCHASTIC_CAST_H_

#include <algorithm>
#include <bit>
#include <cstdint>

#include "kernels/host_device.h"
#include "tutti/codecs/random.h"

namespace tutti::kernels {

// Rounds one element; the SIMD loops of cast_blocks.h give equal bits.
TUTTI_HOST_DEVICE inline std::uint16_t BFloat16AtRandom(float value, std::uint32_t word) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if (value != value) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + (word >> 16)) >> 16);
}

TUTTI_HOST_DEVICE inline std::uint16_t Float16AtRandom(float value, std::uint32_t word) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<std::uint16_t>(sign | 0x7E00u | ((magnitude >> 13) & 0x3FFu));
  if (magnitude < 0x38800000u) {  // below 2^-14: a multiple of 2^-24
    const float level = std::bit_cast<float>(magnitude) * 0x1p24f;
    const auto below = static_cast<std::uint32_t>(level);
    return static_cast<std::uint16_t>(sign | (below + (UnitFromWord(word) < level - static_cast<float>(below))));
  }
  const std::uint32_t rounded = ((magnitude + (word >> 19)) >> 13) - (112u << 10);
  return static_cast<std::uint16_t>(sign | std::min(rounded, 0x7C00u));
}

}  // namespace tutti::kernels

#endif  // TUTTI_KERNELS_STOCHASTIC_CAST_H_
