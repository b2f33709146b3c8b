// The largest error of the codecs whose levels are those of kernels/grid.h: uint8_block and uint4_block.
#ifndef TUTTI_ALGORITHMS_CODECS_GRID_ERROR_H_
#define TUTTI_ALGORITHMS_CODECS_GRID_ERROR_H_

#include <algorithm>
#include <limits>

#include "absl/types/span.h"
#include "tutti/codec.h"
#include "tutti/codecs/finite_range.h"

namespace tutti::codecs {

// The largest error of an element of `block`, which is finite, for codes up to `last`. Infinity unless the range of the
// block is finite.
//
// Levels are (max - min) / last apart, or (max - min) / (last - 1) where rounding is at random and zero lies within the
// range; this step is rounded up to 16 significant bits (a factor of 1 + 2^-15) and to a multiple of the smallest fp32.
// An element becomes the nearest level, half a step away at most; or one of the two levels beside the element, a whole
// step away at most. Whole, too, is what the largest fp32 numbers may lose, whose nearest level can be infinite. The
// quotient by which levels are found is at most 255 and rounded twice, so that the level is wrong by 2^-15 of a step at
// most. Hence 0.501 and 1.001. Last, the sum that the decoder makes is rounded to fp32, by 2^-24 of a number which is
// at most a step beyond the range.
inline double LargestGridError(absl::Span<const float> block, int last, Rounding rounding) {
  const kernels::FiniteRange range = kernels::FindRange(block);
  if (!range.finite) return std::numeric_limits<double>::infinity();
  const double min = range.min;
  const double max = range.max;
  const double largest = std::max(-min, max);
  const bool at_random = rounding == Rounding::kStochastic;
  const int steps = at_random && min < 0 && max > 0 ? last - 1 : last;
  const double step = (max - min) / steps + std::numeric_limits<float>::denorm_min();
  const bool at_the_edge = largest > std::numeric_limits<float>::max() - step;
  return (at_random || at_the_edge ? 1.001 : 0.501) * step + 0x1p-24 * largest;
}

}  // namespace tutti::codecs

#endif  // TUTTI_ALGORITHMS_CODECS_GRID_ERROR_H_
