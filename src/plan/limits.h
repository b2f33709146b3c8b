#ifndef TUTTI_PLAN_LIMITS_H_
#define TUTTI_PLAN_LIMITS_H_

#include <cstdint>

namespace tutti {

// The most bytes that an input or output of one rank, or the parameters of a model, may hold: all that a process can
// address. Sums of a few sizes below this limit do not overflow.
inline constexpr std::int64_t kMostBytes = std::int64_t{1} << 47;

}  // namespace tutti

#endif  // TUTTI_PLAN_LIMITS_H_
