// The arithmetic of the codec minmax_uint8, one element at a time; its SIMD loops must give equal bits. The arithmetic
// is that of Bagua's CUDA kernels, faults included (docs/decisions/0002-uint8-block.md lists them).
#ifndef TUTTI_KERNELS_MINMAX_LEVELS_H_
#define TUTTI_KERNELS_MINMAX_LEVELS_H_

#include <cmath>
#include <cstdint>

#include "kernels/host_device.h"

namespace tutti::kernels {

struct MinMaxLevels {
  float scale;
  float upper;
  float lower;
};

// `min` and `max` are the two numbers sent for a block (NaN when a value of the block is not finite).
TUTTI_HOST_DEVICE inline MinMaxLevels MakeMinMaxLevels(float min, float max) {
  const float range = (max - min) + 1e-7f;
  const float scale = static_cast<float>(255.0 / static_cast<double>(range));
  const float upper = std::nearbyint(max * scale);
  return {scale, upper, upper - 255.0f};
}

TUTTI_HOST_DEVICE inline std::uint8_t EncodeMinMaxUint8(const MinMaxLevels& levels, float value) {
  const float rounded = std::nearbyint(value * levels.scale);
  const float level = (rounded < levels.upper ? rounded : levels.upper) - levels.lower;
  const float positive = level > 0.0f ? level : 0.0f;  // 0 also for a NaN level, as in the CUDA conversion
  return static_cast<std::uint8_t>(positive < 255.0f ? positive : 255.0f);
}

TUTTI_HOST_DEVICE inline float DecodeMinMaxUint8(const MinMaxLevels& levels, std::uint8_t code) {
  return (static_cast<float>(code) + levels.lower) / levels.scale;
}

}  // namespace tutti::kernels

#endif  // TUTTI_KERNELS_MINMAX_LEVELS_H_
