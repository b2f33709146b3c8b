// Scalar conversions between fp32 and the 16-bit floating types, as bits. Rounding is to nearest even; NaN stays NaN
// (quiet, upper payload bits kept, as the x86 instructions do).
#ifndef TUTTI_KERNELS_FLOAT16_H_
#define TUTTI_KERNELS_FLOAT16_H_

#include <bit>
#include <cstdint>

#include "kernels/host_device.h"

namespace tutti::kernels {

TUTTI_HOST_DEVICE inline float FloatFromBFloat16(std::uint16_t bits) {
  return std::bit_cast<float>(std::uint32_t{bits} << 16);
}

TUTTI_HOST_DEVICE inline std::uint16_t BFloat16FromFloat(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if (value != value) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

TUTTI_HOST_DEVICE inline float FloatFromFloat16(std::uint16_t bits) {
#ifdef __CUDA_ARCH__
  if ((bits & 0x7FFFu) <= 0x7C00u) {  // the instruction makes all NaNs alike
    float value = 0;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
  }
#endif
  const std::uint32_t sign = std::uint32_t{bits & 0x8000u} << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1Fu;
  const std::uint32_t mantissa = bits & 0x3FFu;
  if (exponent == 0x1F) {  // infinity, NaN
    const std::uint32_t quiet = mantissa != 0 ? 0x400000u : 0u;
    return std::bit_cast<float>(sign | 0x7F800000u | quiet | (mantissa << 13));
  }
  if (exponent == 0) {  // zero, subnormal: mantissa · 2^-24 is exact in fp32
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

TUTTI_HOST_DEVICE inline std::uint16_t Float16FromFloat(float value) {
#ifdef __CUDA_ARCH__
  if (value == value) {
    std::uint16_t rounded = 0;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(rounded) : "f"(value));
    return rounded;
  }
#endif
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) {
    return static_cast<std::uint16_t>(sign | 0x7E00u | ((magnitude >> 13) & 0x3FFu));
  }
  if (magnitude >= 0x477FF000u) return static_cast<std::uint16_t>(sign | 0x7C00u);  // ≥ 65520 rounds to infinity
  if (magnitude < 0x38800000u) {  // below 2^-14: adding 0.5 leaves the rounded subnormal in the low mantissa bits
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3F000000u));
  }
  const std::uint32_t rounded = magnitude + 0xFFFu + ((magnitude >> 13) & 1u);
  return static_cast<std::uint16_t>(sign | ((rounded >> 13) - (112u << 10)));
}

}  // namespace tutti::kernels

#endif  // TUTTI_KERNELS_FLOAT16_H_
