// With whom a rank exchanges messages in schedules whose distances double, ⌈log2 n⌉ steps in all.
//
// Where n is a power of two, ranks exchange in pairs: each message goes to the rank from which the message of the same
// step comes, so that TCP acknowledges the one with the other, and blocks that follow each other never wrap around the
// end of a buffer. Otherwise ranks stand in a ring: a message goes ahead, and another one comes from behind.
#ifndef TUTTI_SCHEDULES_DOUBLING_STEPS_H_
#define TUTTI_SCHEDULES_DOUBLING_STEPS_H_

#include <bit>
#include <cstdint>

#include "tutti/collective.h"
#include "tutti/schedules/ring_steps.h"

namespace tutti::schedules {

inline bool IsPowerOfTwo(int n) { return std::has_single_bit(static_cast<std::uint32_t>(n)); }

// The rank that is `distance` places, 0 … n-1, ahead of `rank`, or behind it; in pairs both are the same.
inline Rank Ahead(Rank rank, int distance, int n) {
  return IsPowerOfTwo(n) ? rank ^ distance : OnRing(rank + distance, n);
}
inline Rank Behind(Rank rank, int distance, int n) {
  return IsPowerOfTwo(n) ? rank ^ distance : OnRing(rank - distance, n);
}

}  // namespace tutti::schedules

#endif  // TUTTI_SCHEDULES_DOUBLING_STEPS_H_
