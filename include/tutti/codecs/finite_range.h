// The range of a block of fp32 values, in which codecs place their levels.
#ifndef TUTTI_CODECS_FINITE_RANGE_H_
#define TUTTI_CODECS_FINITE_RANGE_H_

#include "absl/types/span.h"

namespace tutti::kernels {

struct FiniteRange {
  bool finite;  // false when any value is NaN or infinite; min and max are then meaningless
  float min;    // the sign of a zero is not defined
  float max;
};

// The range of `values`, at least one. Thread-safe, allocates nothing.
FiniteRange FindRange(absl::Span<const float> values);

}  // namespace tutti::kernels

#endif  // TUTTI_CODECS_FINITE_RANGE_H_
